"""Hold a command's report to its formats: the JSON schema, JUnit's schema and Prometheus' exposition format."""

from __future__ import annotations

import functools
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
from prometheus_client.parser import text_string_to_metric_families

from gpuctl.domain.report import JSON_SCHEMA

XSD = Path(__file__).parents[1] / "data/junit/junit.xsd"
NAME = re.compile(r"gpuctl_[a-z][a-z0-9_]*")
_findings = jsonschema.validators.validator_for(JSON_SCHEMA)
_findings.check_schema(JSON_SCHEMA)


@functools.cache
def _junit() -> Any:
    """The schema of JUnit reports; read when it is first needed, because every worker imports this file."""
    import xmlschema

    return xmlschema.XMLSchema(str(XSD))


def valid_json(text: str) -> dict[str, Any]:
    """The document, once it fits the schema."""
    document: dict[str, Any] = json.loads(text)
    _findings(JSON_SCHEMA).validate(document)
    return document


def valid_junit(text: str) -> dict[tuple[str, str], str]:
    """(class name, name) -> "passed", "error" or "failure" of valid XML: the worst of the test cases of that name."""
    from xml.etree import ElementTree

    _junit().validate(text)
    worst: dict[tuple[str, str], str] = {}
    for case in ElementTree.fromstring(text).iter("testcase"):  # noqa: S314 - our own output
        kind = next((name for name in ("failure", "error") if case.find(name) is not None), "passed")
        key = case.attrib["classname"], case.attrib["name"]
        worst[key] = min(kind, worst.get(key, kind), key=("failure", "error", "passed").index)
    return worst


def valid_metrics(text: str) -> dict[str, list[tuple[dict[str, str], float]]]:
    """Metric -> its samples, once a strict reading and, where it is installed, promtool find nothing wrong."""
    assert text.endswith("\n")
    samples: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(text):
        assert NAME.fullmatch(family.name), family.name
        assert family.documentation
        assert family.type == "gauge"
        rows = [(dict(sample.labels), sample.value) for sample in family.samples]
        assert len({tuple(sorted(labels.items())) for labels, _ in rows}) == len(rows), f"{family.name} has duplicates"
        assert family.name not in samples, f"{family.name} is there twice"
        samples[family.name] = rows
    if promtool := shutil.which("promtool"):
        done = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
    return samples


def valid_metrics_of_files(*texts: str) -> dict[str, list[tuple[dict[str, str], float]]]:
    """Samples of all files of a textfile folder, each valid, once no series stands in two of them.

    The collector merges families of the same name and rejects a series that occurs twice.
    """
    merged: dict[str, list[tuple[dict[str, str], float]]] = {}
    for samples in map(valid_metrics, texts):
        for name, rows in samples.items():
            merged.setdefault(name, []).extend(rows)
    for name, rows in merged.items():
        assert len({tuple(sorted(labels.items())) for labels, _ in rows}) == len(rows), f"{name} has duplicates"
    return merged
