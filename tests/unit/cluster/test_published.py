"""Every object against the schemas that Kubernetes and OpenShift publish of its kind: a bare CRD proves nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from gpuctl.cluster.environment import Object
from gpuctl.cluster.manifests import KINDS, everything
from tests.rig.cluster.files import ROOT
from tests.rig.cluster.rendered import environments, one

SCHEMAS = [json.loads(path.read_text()) for path in sorted((ROOT / "tests/data/cluster/schemas").glob("*.json"))]
VALIDATORS = {
    kind: Draft202012Validator({**schema, "$defs": bundle["$defs"]})
    for bundle in SCHEMAS
    for kind, schema in bundle["kinds"].items()
}


@pytest.fixture(scope="module")
def every(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, list[Object]]]:
    """The objects of every environment, with its name."""
    return [(name, everything(env)) for name, env in environments(tmp_path_factory.mktemp("clusters"))]


def test_every_object_fits_the_published_schema_of_its_kind(every: Any) -> None:
    wrong = [
        f"{name}: {each['kind']}: {error.json_path}: {error.message[:120]}"
        for name, objects in every
        for each in objects
        for error in VALIDATORS[f"{each['apiVersion']} {each['kind']}"].iter_errors(each)
    ]
    assert wrong == []


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind[1])
def test_the_published_schemas_would_see_a_slip(every: Any, kind: tuple[str, str]) -> None:
    found = next(each for _, objects in every for each in objects if (each["apiVersion"], each["kind"]) == kind)
    validator = VALIDATORS[" ".join(kind)]
    assert validator.is_valid(found)
    for inside in ("metadata", "spec") if "spec" in found else ("metadata",):
        assert not validator.is_valid({**found, inside: {**found[inside], "slip": {}}})
    assert not validator.is_valid({**found, "slip": {}})


def test_the_published_schemas_would_see_a_slip_deep_inside(every: Any) -> None:
    _, objects = every[0]
    broken = json.loads(json.dumps(one(objects, "StatefulSet")))
    broken["spec"]["template"]["spec"]["containers"][0]["securityContex"] = {}
    assert not VALIDATORS["apps/v1 StatefulSet"].is_valid(broken)
