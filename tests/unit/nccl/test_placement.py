"""Errors of topology files name the problem without Python's own messages."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuctl.core.errors import InvalidInput
from gpuctl.nccl.topology import racks


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ('{"Instances": [', "it is not valid JSON in line 1: Expecting value"),
        ('{\n"Instances" []}', "it is not valid JSON in line 2: Expecting ':' delimiter"),
        ('{"Instances": ' + "[" * 50_000, "it is not valid JSON: it is nested too deeply"),
        ('{"Reservations": []}', 'the JSON has no "Instances" list'),
        ('{"Instances": {}}', 'the JSON has no "Instances" list'),
        ('[{"InstanceId": "i-1", "NetworkNodes": ["nn-1"]}, 7]', "its instance 2 has no InstanceId"),
        ('{"Instances": [{"InstanceId": "i-1"}]}', "its instance 1 has no InstanceId with a list of NetworkNodes"),
    ],
)
def test_an_invalid_instance_topology_is_refused_without_a_python_error(text: str, wrong: str, tmp_path: Path) -> None:
    file = tmp_path / "topology.json"
    file.write_text(text)
    with pytest.raises(InvalidInput) as error:
        racks.read(file)
    assert wrong in error.value.wrong
    assert "Error" not in str(error.value)
    assert "describe-instance-topology" in error.value.hint
