"""gpu-node verify: hosts that do not answer are never well, and its exit codes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
from click.testing import CliRunner, Result

from gpuctl.cli.gpu_node.verify import verify
from gpuctl.domain.report import JSON_SCHEMA
from gpuctl.gpu_node import site
from gpuctl.gpu_node.facts_file import Fleet, HostRecord
from gpuctl.gpu_node.model import HostGpuFacts
from gpuctl.hosts.model import HostResult, Target
from gpuctl.workflows import gpu_node_nccl, gpu_node_verify
from gpuctl.workflows.gpu_node_plan import Survey
from tests.unit.gpu_node.test_verify import REQUEST, complete, readings

WELL = complete("HGX H100")


def run(
    monkeypatch: pytest.MonkeyPatch,
    hosts: dict[str, HostGpuFacts],
    silent: Sequence[str] = (),
    lost: Sequence[str] = (),
) -> Result:
    """Verify these hosts. `lost`: not reached for the plan's facts; `silent`: not reached the second time."""
    rows = {
        name: HostRecord(json.loads(json.dumps(asdict(facts))), site.plain(REQUEST)) for name, facts in hosts.items()
    }
    targets = [Target(name) for name in [*hosts, *lost]]
    surveyed = Survey(Path("prod"), targets, Fleet(rows, dict.fromkeys(lost, "no route to host")), [])

    def visit(reached: Sequence[Target], request_of: Any, **_: Any) -> list[HostResult]:
        assert [host.name for host in reached] == list(hosts)
        assert request_of(reached[0]) == {"action": "facts", "subjects": "nccl", "only": ["gpu", "rdma"]}
        return [
            HostResult(host.name, wrong="connection lost", unreachable=True)
            if host.name in silent
            else HostResult(host.name, {"facts": readings(WELL)})
            for host in reached
        ]

    monkeypatch.setattr(gpu_node_nccl, "survey", lambda *_: surveyed)
    monkeypatch.setattr(gpu_node_verify, "run_on_all", visit)
    return CliRunner().invoke(verify, ["-i", "prod", "-o", "json"])


def verdicts(result: Result) -> dict[str, set[str]]:
    report = json.loads(result.stdout)
    jsonschema.validate(report, JSON_SCHEMA)
    assert report["exit_code"] == result.exit_code
    found: dict[str, set[str]] = {}
    for row in report["findings"]:
        found.setdefault(row["subject"], set()).add(row["verdict"])
    return found


def test_hosts_that_are_well(monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(monkeypatch, {"n1": WELL, "n2": WELL})
    assert (result.exit_code, verdicts(result)) == (0, {"n1": {"OK"}, "n2": {"OK"}})


def test_one_host_that_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(monkeypatch, {"n1": WELL, "n2": complete("HGX H100", running_module="")})
    assert (result.exit_code, verdicts(result)["n1"], "FAIL" in verdicts(result)["n2"]) == (1, {"OK"}, True)


def test_a_path_without_the_test_is_refused() -> None:
    result = CliRunner().invoke(verify, ["-i", "prod", "--search-path", "/opt/nccl-tests"])
    assert "--search-path needs --nccl" in str(result.exception)


@pytest.mark.parametrize("more", [{"silent": ["n1"]}, {"lost": ["n2"]}])
def test_a_host_that_is_not_reached_is_unknown(monkeypatch: pytest.MonkeyPatch, more: dict[str, Any]) -> None:
    result = run(monkeypatch, {"n1": WELL}, **more)
    assert result.exit_code == 3
    assert verdicts(result)[(*more.get("silent", ()), *more.get("lost", ()))[0]] == {"UNKNOWN"}
