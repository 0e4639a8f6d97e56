"""gpu-node plan: what it prints, its exit codes, and input that cannot be used. Hosts are those of a file of facts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jsonschema  # type: ignore[import-untyped]
import pytest
from click.testing import CliRunner, Result

from gpuctl.cli.gpu_node.plan import plan
from gpuctl.core.errors import InvalidInput
from gpuctl.domain.report import JSON_SCHEMA
from gpuctl.gpu_node import facts_file, site
from gpuctl.gpu_node.facts_file import Fleet, HostRecord
from gpuctl.gpu_node.knowledge import knowledge
from gpuctl.gpu_node.model import HostGpuFacts, StackRequest
from gpuctl.gpu_node.version import driver_version
from tests.rig.gpu_stack_machines import MACHINES, offered

KNOWN = knowledge()
REQUEST = StackRequest(driver_version("580.178.04"))
INSTALLED = dict.fromkeys(("libnvidia-compute-580", "nvidia-dkms-580-open", "nvidia-modprobe"), "580.178.04-1")
WHOLE = replace(
    MACHINES["T4"],
    offers=offered(REQUEST, KNOWN),
    packages=INSTALLED,
    running_module="580.178.04",
    running_open=True,
    installed_module="580.178.04",
    installed_open=True,
    smi_gpus=1,
)
LOST = replace(WHOLE, smi_gpus=0)


def fleet(path: Path, hosts: Mapping[str, HostGpuFacts], unasked: Mapping[str, str] | None = None) -> Path:
    rows = {
        name: HostRecord(json.loads(json.dumps(asdict(facts))), site.plain(REQUEST)) for name, facts in hosts.items()
    }
    facts_file.save(path / "facts.json", Fleet(rows, unasked or {}))
    return path / "facts.json"


def run(*words: str | Path) -> Result:
    return CliRunner().invoke(plan, [str(word) for word in words])


def report(*words: str | Path) -> dict[str, Any]:
    result = run(*words, "-o", "json")
    document: dict[str, Any] = json.loads(result.output)
    jsonschema.validate(document, JSON_SCHEMA)
    assert document["exit_code"] == result.exit_code
    return document


def test_hosts_alike_are_one_line(tmp_path: Path) -> None:
    result = run("--from", fleet(tmp_path, {"a": WHOLE, "b": WHOLE}))
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert lines[0].split() == ["HOSTS", "STATE", "GPUS", "DRIVER", "FABRIC", "REBOOT"]
    assert lines[1].split(None, 2)[:2] == ["a,", "b"]
    assert "1 x T4" in lines[1]
    assert "580.178.04, open module" in lines[1]
    assert "580.178.04 (installed: 580.178.04): nothing to do; T4 works with both" in result.output
    assert lines[-1] == "2 hosts: 2 up to date"


@pytest.mark.parametrize(
    ("hosts", "unasked", "words", "code"),
    [
        ({"a": WHOLE}, {}, (), 0),
        ({"a": LOST}, {}, (), 1),
        ({"a": replace(WHOLE, gpus=None)}, {}, (), 1),
        ({"a": replace(WHOLE, holds=("nvidia-dkms-570",))}, {}, (), 0),
        ({"a": replace(WHOLE, holds=("nvidia-dkms-570",))}, {}, ("--strict",), 1),
        ({"a": WHOLE}, {"b": "no route to host"}, (), 3),
    ],
)
def test_exit_codes(
    hosts: dict[str, HostGpuFacts], unasked: dict[str, str], words: tuple[str, ...], code: int, tmp_path: Path
) -> None:
    document = report("--from", fleet(tmp_path, hosts, unasked), *words)
    assert document["exit_code"] == code
    assert document["unasked"] == unasked


def test_a_refusal_has_its_reason_and_a_way_out(tmp_path: Path) -> None:
    result = run("--from", fleet(tmp_path, {"a": LOST, "b": WHOLE}))
    assert "FAIL     lost gpu        a: the PCI bus has 1 GPUs, nvidia-smi lists 0" in result.output
    assert "hint: read the kernel log for an Xid, and repair the host first" in result.output
    assert result.output.splitlines()[-1] == "2 hosts: 1 refused, 1 up to date"


def test_packages_that_were_not_resolved_are_unknown(tmp_path: Path) -> None:
    document = report("--from", fleet(tmp_path, {"a": replace(WHOLE, packages={}, installed_module="")}))
    assert document["hosts"]["a"]["state"] == "unknown"
    assert document["hosts"]["a"]["transaction"] is None
    assert "transaction" in {finding["check"] for finding in document["findings"] if finding["verdict"] == "UNKNOWN"}


def test_junit_has_a_failure_for_each_refusal(tmp_path: Path) -> None:
    result = run("--from", fleet(tmp_path, {"a": LOST}), "-o", "junit")
    suite = ElementTree.fromstring(result.output)  # noqa: S314 - our own output
    failed = [case.get("classname") for case in suite.iter("testcase") if case.find("failure") is not None]
    assert failed == ["gpuctl.gpu-node.plan.lost gpu"]


def test_another_stack_is_planned_with_recorded_facts(tmp_path: Path) -> None:
    stack = tmp_path / "stack.yml"
    stack.write_text("gpu_stack: {driver: none}\n")
    document = report("--from", fleet(tmp_path, {"a": WHOLE}), "--stack", stack)
    assert document["hosts"]["a"]["driver"] is None
    assert document["hosts"]["a"]["state"] == "up to date"


@pytest.mark.parametrize("tests", ["/shared/nccl-tests", "2.17.6"])
def test_tests_that_no_host_was_asked_for_are_unknown(tmp_path: Path, tests: str) -> None:
    stack = tmp_path / "stack.yml"
    stack.write_text(f"gpu_stack: {{driver: 580.178.04, nccl_tests: {tests}}}\n")
    document = report("--from", fleet(tmp_path, {"a": WHOLE}), "--stack", stack)
    [row] = [row for row in document["findings"] if row["check"] == "nccl-tests"]
    assert row["verdict"] == "UNKNOWN"
    assert f"was not asked for {tests}; plan again without --from" in row["message"]
    assert document["exit_code"] == 1


def test_input_that_cannot_be_used_is_refused(tmp_path: Path) -> None:
    facts = fleet(tmp_path, {"a": WHOLE})
    stack = tmp_path / "stack.yml"
    stack.write_text("gpu_stack: {driver: latest}\n")
    assert isinstance(run("--from", facts, "--stack", stack).exception, InvalidInput)
    assert isinstance(run("--from", facts, "--limit", "a").exception, InvalidInput)
    assert isinstance(run("--from", tmp_path / "missing.json").exception, InvalidInput)
    document = json.loads(facts.read_text())
    document["gpu_hosts"]["a"]["stack"]["gpus"] = "many"
    facts.write_text(json.dumps(document))
    assert isinstance(run("--from", facts).exception, InvalidInput)
