"""The published schema and the reader take the same files; combinations are the reader's alone."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from gpuctl.cluster.clusterfile import fields, schema
from gpuctl.cluster.clusterfile.model import Cluster
from gpuctl.cluster.clusterfile.patterns import URL
from gpuctl.cluster.clusterfile.read import EMPTY, parse
from gpuctl.core.strict_yaml import At, Mistakes
from gpuctl.core.strict_yaml import read as read_yaml
from tests.rig.cluster.files import EKS, OPENSHIFT, ROCE, document

DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)  # thousands of documents are written
VALIDATOR = Draft202012Validator(schema.document())
FULL = document(
    {
        "cluster": {"environment": "alice", "description": "a lab"},
        "storage": {"class_rwo": "rbd", "workspace_size": "1Ti", "folders": {"/data": "datasets/a"}},
        "network": {
            "rdma": {**ROCE, "devices": ["mlx5_0"], "gid_index": 3, "environment": {"NCCL_NET": "IB"}},
            "tcp": {"interface_exclude": ["lo"], "p2p_level": "NVL"},
        },
        "nodes": {"gpu_nodes": ["a", "b"], "selector": {"rack": "r1"}, "topology_key": "rack"},
        "security": {"ipc_lock": True, "run_as_user": 1000},
        "ports": {
            "vscode": 8080,
            "expose": ["vscode"],
            "ingress": {"domain": "a.org", "from_addresses": ["10.0.0.0/8"]},
        },
        "nccl": {"debug": "INFO"},
        "notes": "two\nlines",
    }
)
# What YAML reads as text only: reader and schema have to say the same of it.
WORDS = ["a", "A_b", "a.b", "", "~", "x/y", "100Gi", "100G", "500m", "https://x.org:6443", "mlx5_0", "two\nlines", "/x"]
NESTED = [
    [],
    ["a"],
    ["a", "a"],
    ["A_b", "a.b"],
    {},
    {"a": "b"},
    {"NCCL_X": "b"},
    {"a.org/efa": "4x"},
    {"/x": "datasets/a"},
]
# The reader also takes a number for a text, as `name: 3` means it; what the schema takes, it has to take.
NUMBERS = [{"a.org/efa": 4}, {"NCCL_X": 1.5}, True, False, 0, 1, 3, 64, 8080, 70000, 1.5, None, -1]


def ways(document: Any, way: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every place in a document."""
    if isinstance(document, dict):
        for name, item in document.items():
            yield (*way, name)
            yield from ways(item, (*way, name))


def changed(way: tuple[str, ...], value: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(FULL))
    inside = found
    for name in way[:-1]:
        inside = inside[name]
    inside[way[-1]] = value
    return found


def without(way: tuple[str, ...]) -> dict[str, Any]:
    found = changed(way, "")
    inside = found
    for name in way[:-1]:
        inside = inside[name]
    del inside[way[-1]]
    return found


def read_without_rules(path: Path, content: dict[str, Any]) -> bool:
    """Whether the reader finds every single field right."""
    mistakes = Mistakes()
    path.write_text(yaml.dump(content, Dumper=DUMPER))
    node = read_yaml(path, mistakes.items, EMPTY)
    assert node is not None
    fields.Part(Cluster).read(node, At("", mistakes))
    return not mistakes.items


PLACES = [*ways(FULL), ("extra",), ("gpus", "extra"), ("image", "build")]


@pytest.mark.parametrize("value", [*WORDS, *NESTED], ids=repr)
def test_reader_and_schema_say_the_same_of_any_text_list_and_mapping(tmp_path: Path, value: Any) -> None:
    contents = {way: changed(way, value) for way in PLACES}
    read = {way for way, content in contents.items() if read_without_rules(tmp_path / "a.yaml", content)}
    assert read == {way for way, content in contents.items() if VALIDATOR.is_valid(content)}


@pytest.mark.parametrize("value", NUMBERS, ids=repr)
def test_the_reader_takes_every_number_that_the_schema_takes(tmp_path: Path, value: Any) -> None:
    contents = {way: changed(way, value) for way in PLACES}
    valid = {way for way, content in contents.items() if VALIDATOR.is_valid(content)}
    assert {way for way in valid if not read_without_rules(tmp_path / "a.yaml", contents[way])} == set()


@pytest.mark.parametrize("value", ["", "a", [], ["a"], {}, {"a": "b"}, 1, None], ids=repr)
def test_no_value_anywhere_is_a_fault_of_ours(tmp_path: Path, value: Any) -> None:
    path = tmp_path / "a.yaml"
    for way in PLACES:
        path.write_text(yaml.dump(changed(way, value), Dumper=DUMPER))
        found = parse(path)
        assert (found.cluster is None) == bool(found.mistakes)


def test_both_miss_what_is_missing(tmp_path: Path) -> None:
    contents = {way: without(way) for way in ways(FULL)}
    read = {way for way, content in contents.items() if read_without_rules(tmp_path / "a.yaml", content)}
    assert read == {way for way, content in contents.items() if VALIDATOR.is_valid(content)}
    assert ("cluster", "api") not in read
    assert ("cluster", "environment") in read


@pytest.mark.parametrize("example", [OPENSHIFT, EKS], ids=lambda path: path.stem)
def test_the_examples_fit_the_schema(example: Path) -> None:
    assert VALIDATOR.is_valid(yaml.safe_load(example.read_text()))


def test_a_port_of_a_url_is_one_that_there_can_be() -> None:
    taken = [port for port in range(100_000) if re.fullmatch(URL.pattern, f"https://lab.example.org:{port}")]
    assert taken == list(range(1, 65536))


def test_the_schema_is_one() -> None:
    Draft202012Validator.check_schema(schema.document())


def test_every_field_says_what_it_is_for_and_is_in_the_table_once() -> None:
    rows = schema.rows()
    assert len({row["field"] for row in rows}) == len(rows) > 60
    assert [row["field"] for row in rows if not row["about"].endswith((".", "]"))] == []
    required = {row["field"] for row in rows if row["default"] == "required"}
    assert {"cluster.name", "cluster.api", "gpus.per_node", "resources.memory"} <= required
