"""The kubelet's files as text: fields are read, replaced and brought back; every other line stays as it is."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.kubelet import configuration
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.model import Unreadable

# As kubeadm writes it, with lines of a person.
TEXT = """---
# of the platform team
apiVersion: kubelet.config.k8s.io/v1beta1
authentication:
  anonymous:
    enabled: false
clusterDNS:
- 10.96.0.10
cpuManagerPolicy: none   # for now
evictionHard:
  memory.available: "500Mi"  # measured
  nodefs.available: 10%

kind: KubeletConfiguration
kubeReserved: {cpu: 500m, memory: "1Gi"}
topologyManagerScope:
"""
CHANGES: dict[str, Any] = {
    "cpuManagerPolicy": "static",
    "kubeReserved": {"memory": "2Gi"},
    "reservedSystemCPUs": "0-1",
    "reservedMemory": [{"numaNode": 0, "limits": {"memory": "3Gi"}}],
}


def texts(text: str, values: dict[str, Any]) -> dict[str, Any]:
    return {key: None if value is None else configuration.written(text, key, value) for key, value in values.items()}


def test_fields_are_words_and_flat_mappings() -> None:
    fields = configuration.fields(TEXT, "config.yaml")
    assert fields["cpuManagerPolicy"] == "none"
    assert fields["evictionHard"] == {"memory.available": "500Mi", "nodefs.available": "10%"}
    assert fields["kubeReserved"] == {"cpu": "500m", "memory": "1Gi"}
    assert fields["topologyManagerScope"] is None
    assert isinstance(fields["authentication"], configuration.NotPlain)
    assert isinstance(fields["clusterDNS"], configuration.NotPlain)


def test_replaced_fields_are_the_only_difference() -> None:
    text = configuration.replaced(TEXT, texts(TEXT, CHANGES), "config.yaml")
    assert yaml.safe_load(text) == {**yaml.safe_load(TEXT), **CHANGES}
    assert set(TEXT.splitlines()) - set(text.splitlines()) == {
        "cpuManagerPolicy: none   # for now",
        'kubeReserved: {cpu: 500m, memory: "1Gi"}',
    }
    assert {key: configuration.fields(text, "config.yaml")[key] for key in CHANGES} == CHANGES


def test_lines_of_a_field_come_back_as_they_were() -> None:
    text = configuration.replaced(TEXT, texts(TEXT, CHANGES), "config.yaml")
    back = {key: configuration.texts(TEXT, "config.yaml").get(key) for key in CHANGES}
    assert configuration.replaced(text, back, "config.yaml") == TEXT


def test_a_last_line_without_an_end_gets_one() -> None:
    assert configuration.replaced("kind: X", {"maxPods": "maxPods: 5\n"}, "x") == "kind: X\nmaxPods: 5\n"


def test_a_last_field_without_an_end_does_not_swallow_the_next() -> None:
    before = configuration.texts("kind: X\ncpuManagerPolicy: none", "c")
    text = configuration.replaced('kind: X\ncpuManagerPolicy: "static"\nmaxPods: 5\n', before, "c")
    assert text == "kind: X\ncpuManagerPolicy: none\nmaxPods: 5\n"


@pytest.mark.parametrize(
    ("text", "former"), [("kind: X\n", '"none"'), ('{"kind": "X"}', "a: none\n"), ("kind: X\n", "b: 1\nc: 2\n")]
)
def test_a_text_of_another_form_is_not_written(text: str, former: str) -> None:
    with pytest.raises(Unreadable):
        configuration.replaced(text, {"a": former}, "c")


def test_a_file_of_json_stays_json_with_its_indent() -> None:
    text = json.dumps({"kind": "KubeletConfiguration", "cpuManagerPolicy": "none"}, indent=4)
    after = configuration.replaced(text, {"cpuManagerPolicy": '"static"', "kind": None}, "config.json")
    assert after == '{\n    "cpuManagerPolicy": "static"\n}'


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("kind: A\n---\nkind: B\n", "config:2 is not understood"),
        ("kind: A\nkind: B\n", "config:2: kind is there twice"),
        ('"kind": A\n', "config:1 is not understood"),
        ("{kind: A}\n", "neither JSON nor plain YAML"),
        ("kind: A\n? x\n", "config:2 is not understood"),
    ],
)
def test_other_forms_are_refused_with_their_line(text: str, problem: str) -> None:
    with pytest.raises(Unreadable, match=problem):
        configuration.fields(text, "config")


@pytest.mark.parametrize("value", ["|\n  a", "&x {a: b}", "{a: {b: c}}", "[a, b]", "\n  a:\n    b: c", "x\n  y"])
def test_a_value_of_another_form_is_known_as_such(value: str) -> None:
    assert isinstance(configuration.fields(f"evictionHard: {value}\n", "c")["evictionHard"], configuration.NotPlain)
