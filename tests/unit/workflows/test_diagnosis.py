"""Deep audit: DCGM runs where nobody computes, goes on without a listener, and what did not run has not passed.

The engine's visit runs as on a host, below a root of the test; dcgmi is a stand-in that prints a recorded output.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost import diagnosis as engine
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.api import visit
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.host import Host
from ansible_collections.gpuctl.fleet.plugins.plugin_utils import answers

from gpuctl.audit import knowledge
from gpuctl.core.run_history import current_user
from gpuctl.domain.findings import Finding, Verdict
from gpuctl.hosts.model import HostResult, Target
from gpuctl.nccl.preflight.facts_file import Fleet
from gpuctl.workflows import audit_rules, diagnosis
from tests.rig.h100_node import program, put
from tests.rig.healthy_nodes import fleet
from tests.rig.host import wait_until
from tests.rig.recordings import recording

STANDIN = Path(__file__).parents[2] / "rig/standins/standin-dcgmi"
AT = "/var/lib/standins/dcgmi"
PASSED = json.dumps(
    {
        "DCGM Diagnostic": {
            "test_categories": [
                {
                    "category": "Hardware",
                    "tests": [
                        {"name": "memory", "results": [{"entity_group": "GPU", "entity_id": 0, "status": "Pass"}]}
                    ],
                }
            ]
        },
        "metadata": {"version": "4.2.3"},
    }
)
FAST = {"timeout_s": 5.0, "pause_s": 0.02}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A host without systemd whose dcgmi passes at once."""
    for name in ("sh", "setsid", "mv", "cat", "sleep"):
        program(tmp_path, name, f'exec {shutil.which(name)} "$@"')
    shutil.copy(STANDIN, tmp_path / "usr/bin/dcgmi")
    put(tmp_path, "/proc/1/comm", "systemd\n")
    put(tmp_path, "/proc/self/status", "Name:\tpython\n")
    prints(tmp_path, PASSED)
    return tmp_path


def prints(root: Path, output: str, code: int = 0, wait: str = "0") -> None:
    for name, text in {"output": output, "code": str(code), "wait": wait, "calls": ""}.items():
        put(root, f"{AT}/{name}", text)


def calls(root: Path) -> list[str]:
    return (root / f"{AT}/calls".lstrip("/")).read_text().splitlines()


def sender(root: Path, lost: Callable[[Mapping[str, Any]], bool] = lambda _: False) -> diagnosis.Send:
    """Carry requests to the engine as ssh does; `lost`: True for a request whose answer is lost."""

    def send(hosts: Sequence[Target], request: Callable[[Target], dict[str, Any]], **_: Any) -> list[HostResult]:
        results = []
        for host in hosts:
            asked = request(host)
            answer = answers.checked(json.loads(json.dumps(visit(asked, Host(root)))), asked)
            wrong = "connection reset" if lost(asked) else ""
            results.append(HostResult(host.name, None if wrong else answer, wrong))
        return results

    return send


def run(root: Path, level: int = 1, nodes: dict[str, Any] | None = None, **more: Any) -> list[Finding]:
    """Findings of the check, worst first as printed."""
    send = more.pop("send", None) or sender(root)
    options = diagnosis.DeepOptions(level, **{**FAST, **more})
    known = Fleet(nodes or fleet(1))
    diagnosed, findings = diagnosis.diagnose([Target("n1", "10.0.0.1")], known, options, lambda _: None, send)
    judged = audit_rules.judge(diagnosed, knowledge.catalogue())
    return [*findings, *(finding for finding in judged if finding.check == "dcgm")]


def test_a_diagnosis_that_passed_is_ok_and_leaves_nothing_behind(root: Path) -> None:
    (finding,) = run(root, level=2)
    assert (finding.subject, finding.verdict, finding.message) == ("n1", Verdict.OK, "1 test of DCGM passed: memory")
    assert calls(root) == ["diag -r 2 -j"]
    assert not Host(root).exists(engine.FOLDER)


def test_persistence_mode_is_a_setting_and_no_fault(root: Path) -> None:
    prints(root, recording("host/dcgmi_diag_r1_v4_gb10_fail.json").read_text(), code=226)
    (finding,) = run(root)
    assert (finding.verdict, finding.numbers) == (Verdict.WARN, {"error_id": 29})


@pytest.mark.parametrize(
    ("output", "code", "message"),
    [
        ("", 204, "its diagnosis has no result: dcgmi printed nothing"),
        ("Error: unable to establish a connection to the specified host: localhost\n", 255, "unable to establish"),
        (PASSED[:-60], 0, "its output is cut"),
        (PASSED, 226, "its tests passed, and dcgmi ended with 226: it ran, and a test failed"),
        ('{"DCGM Diagnostic": {"runtime_error": "nvvs is missing"}}', 204, "nvvs is missing"),
        ('{"DCGM Diagnostic": {"test_categories": []}}', 198, "no test of its diagnosis ran: dcgmi ended with 198"),
        ('{"DCGM Diagnostic": {}}', 0, "no test of its diagnosis ran: it has none"),
    ],
)
def test_what_did_not_run_is_unknown(output: str, code: int, message: str, root: Path) -> None:
    prints(root, output, code)
    findings = run(root)
    assert {finding.verdict for finding in findings} == {Verdict.UNKNOWN}
    assert any(message in finding.message for finding in findings)


def test_a_node_in_use_is_refused_with_its_users(root: Path) -> None:
    nodes = fleet(1)
    nodes["n1"]["gpu"]["gpus"][0]["processes"] = [{"pid": 4711, "name": "python", "used_mib": 9, "type": "C"}]
    (finding,) = run(root, nodes=nodes)
    assert finding.verdict is Verdict.UNKNOWN
    assert "it is in use: processes on its GPUs: python (4711)" in finding.message
    assert calls(root) == []


def test_a_job_that_began_since_is_noticed_on_the_host(root: Path) -> None:
    put(root, "/proc/77/comm", "slurmstepd\n")
    (finding,) = run(root)
    assert "not diagnosed, as it is in use: Slurm runs 1 job steps here" in finding.message
    assert calls(root) == []


def test_a_host_without_dcgm_is_unknown(root: Path) -> None:
    (root / "usr/bin/dcgmi").unlink()
    (finding,) = run(root)
    assert (finding.verdict, finding.message) == (Verdict.UNKNOWN, "it has no dcgmi: DCGM is not installed")


def test_the_next_call_goes_on_where_the_connection_was_lost_even_if_the_diagnosis_is_seen_as_a_job(root: Path) -> None:
    prints(root, PASSED, wait="0.3")
    first = run(root, send=sender(root, lost=lambda request: not request["start"]))
    assert [(f.verdict, "the connection was lost while it ran" in f.message) for f in first] == [
        (Verdict.UNKNOWN, True)
    ]
    nodes = fleet(1)
    nodes["n1"]["gpu"]["gpus"][0]["processes"] = [{"pid": 9, "name": "nvvs", "used_mib": 9, "type": "C"}]
    assert [finding.verdict for finding in run(root, nodes=nodes)] == [Verdict.OK]
    assert calls(root) == ["diag -r 1 -j"]


def test_a_result_that_was_not_collected_is_read_by_the_next_call(root: Path) -> None:
    run(root, send=sender(root, lost=lambda request: request["collected"] is None and not request["start"]))
    wait_for(lambda: Host(root).exists(f"{engine.FOLDER}/code"))
    prints(root, PASSED)
    assert [finding.verdict for finding in run(root)] == [Verdict.OK]
    assert calls(root) == []


def test_a_result_of_before_a_change_does_not_count_where_a_new_one_is_asked_for(root: Path) -> None:
    run(root, send=sender(root, lost=lambda request: request["collected"] is None and not request["start"]))
    wait_for(lambda: Host(root).exists(f"{engine.FOLDER}/code"))
    prints(root, PASSED)
    assert [finding.verdict for finding in run(root, new=True)] == [Verdict.OK]
    assert calls(root) == ["diag -r 1 -j"]


def test_another_level_that_runs_is_not_disturbed(root: Path) -> None:
    prints(root, PASSED, wait="0.5")
    (late,) = run(root, limit_s=0.0)
    assert "it still runs after" in late.message
    (finding,) = run(root, level=3)
    assert f"a diagnosis of level 1 by {current_user()} has run for 0 min" in finding.message
    wait_until(lambda: calls(root) != [], 20, "the diagnosis that was started first does not begin")
    assert calls(root) == ["diag -r 1 -j"]


def test_a_diagnosis_that_was_killed_is_unknown_and_the_next_one_starts(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "STARTING_S", 0)
    prints(root, PASSED, wait="30")
    run(root, limit_s=0.0)
    written = root / f"{engine.FOLDER}/pid".lstrip("/")
    wait_for(lambda: written.exists() and bool(written.read_text().strip()))
    pid = int(written.read_text())
    os.killpg(pid, signal.SIGKILL)
    wait_for(lambda: not Path(f"/proc/{pid}/cmdline").exists() or not Path(f"/proc/{pid}/cmdline").read_bytes())
    answer = visit({"action": "diagnose", "level": 1}, Host(root))["diagnosis"]
    assert (answer["state"], answer["error"]) == ("lost", "it was killed before it ended")
    prints(root, PASSED)
    assert [finding.verdict for finding in run(root)] == [Verdict.OK]


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)
