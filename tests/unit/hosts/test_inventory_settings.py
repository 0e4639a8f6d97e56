"""Variables that become knobs: compiled for the hosts that have them; mistakes are named, with file and line."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuctl.core.errors import InvalidInput
from gpuctl.hosts import inventory_settings
from gpuctl.hosts.model import Target
from tests.rig.trees.host import put

WRONG = {"persistance": "on", "power_limit": "500W", "mig": [{"gpus": [0]}]}
FILE = """# H100 nodes
gpu_settings:
  persistance: on
  power_limit: 500W
  mig:
    - gpus: [0]
"""


def test_a_host_without_the_variable_is_left_alone_and_an_empty_one_gives_back(tmp_path: Path) -> None:
    hosts = [
        Target("a"),
        Target("b", gpu_settings={}),
        Target("c", gpu_settings={"power_limit": 500, "persistence": True}),
    ]
    compiled = inventory_settings.compiled("gpu_settings", hosts, tmp_path)
    assert list(compiled) == ["b", "c"]
    assert compiled["b"] == []
    # In the order in which they are set: persistence first.
    assert [(row["name"], row["value"]) for row in compiled["c"]] == [
        ("gpu.persistence", "on"),
        ("gpu.power_limit", "500"),
    ]


def test_every_mistake_is_named_once_with_file_and_line(tmp_path: Path) -> None:
    put(tmp_path, "/hosts.yml", "all: {hosts: {a: , b: }}\n")
    put(tmp_path, "/group_vars/h100.yml", FILE)
    hosts = [Target(name, gpu_settings=WRONG) for name in ("a", "b")]
    with pytest.raises(InvalidInput) as error:
        inventory_settings.compiled("gpu_settings", hosts, tmp_path)
    text = str(error.value)
    file = tmp_path / "group_vars/h100.yml"
    assert f"{file}:3: there is no GPU setting persistance; did you mean persistence?" in text
    assert f"{file}:4: gpu_settings.power_limit must be a whole number without a unit, not '500W'" in text
    assert f"{file}:6: gpu_settings.mig entry 1 needs instances" in text
    assert "a: " not in text.replace("such as", "")
    assert text.count("there is no GPU setting") == 1


def test_a_mistake_in_no_plain_file_is_named_by_host(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"a: gpu_settings\.power_limit: gpu_settings\.power_limit must be"):
        inventory_settings.compiled(
            "gpu_settings", [Target("a", gpu_settings={"power_limit": "500W"})], tmp_path / "hosts.ini"
        )


def test_a_template_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="it is a Jinja template"):
        inventory_settings.compiled(
            "gpu_settings", [Target("a", gpu_settings={"power_limit": "{{ watts }}"})], tmp_path
        )


def test_a_value_that_is_no_mapping_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="gpu_settings is not a mapping"):
        inventory_settings.compiled("gpu_settings", [Target("a", gpu_settings=["persistence"])], tmp_path)


def test_a_group_of_the_variable_s_name_is_not_the_variable(tmp_path: Path) -> None:
    below = "kubelet_resources:\n      hosts: {a: }\n    site:\n      children: {kubelet_resources: }\n"
    groups = f"all:\n  children:\n    {below}"
    put(tmp_path, "/hosts.yml", f"{groups}kubelet_resources:\n  hosts: {{a: }}\n")
    put(tmp_path, "/group_vars/site.yml", "kubelet_resources:\n  reserved_cpu: 0-1\n")
    with pytest.raises(InvalidInput) as error:
        inventory_settings.compiled(
            "kubelet_resources", [Target("a", kubelet_resources={"reserved_cpu": "0-1"})], tmp_path
        )
    assert "group_vars/site.yml:2: there is no resource reserved_cpu of the kubelet" in str(error.value)
    assert "hosts.yml" not in str(error.value)
