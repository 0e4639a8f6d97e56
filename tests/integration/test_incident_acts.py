"""From the log of a job to the resumed one: a GPU is reset once on a real host, behind a drain of a real Slurm.

Stand-ins: nvidia-smi, whose GPU waits for a row remap until it is reset, and journalctl; the job is a file of the test.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gpuctl.cli.incident.group import incident as command
from gpuctl.core import run_history
from gpuctl.incident import record
from gpuctl.incident.model import Incident, State, Step
from tests.integration.conftest import Hosts
from tests.integration.test_audit import SMI, XML, furnish
from tests.rig import Rig, TestHost, slurm_programs
from tests.rig.incident_stories import Killed
from tests.rig.needs import HOSTS, need

PENDING = "<remapped_row_pending>"
RESETS = "/run/resets"
OF_THE_RIG = "/usr/local/lib/nvidia-smi-of-the-rig"
WRAPPER = f"""#!/bin/sh
# Stand-in for nvidia-smi, around the rig's: a reset ends the pending remap, and prints what the real one prints.
case " $* " in
*" --gpu-reset "*)
    echo "$@" >> {RESETS}
    mv {SMI}.after {SMI}
    echo 'GPU 00000000:2A:00.0 was successfully reset.'
    exit ;;
esac
exec {OF_THE_RIG} "$@"
"""


def furnish_ill(host: TestHost) -> None:
    """GPU 1 waits for a row remap."""
    real = host.run("sh", "-c", "command -v nvidia-smi").stdout.strip()
    host.run("mv", real, OF_THE_RIG)
    host.write(real, WRAPPER, mode=0o755)
    head, first, second = XML.split(PENDING, 2)
    host.write(SMI, f"{head}{PENDING}{first}{PENDING}Yes{second.removeprefix('No')}")
    host.write(f"{SMI}.after", XML)


def invoke(*words: str | Path) -> Result:
    return CliRunner().invoke(command, [*map(str, words)])


def states(one: Incident) -> dict[Step, State]:
    return {entry.step: entry.answer.state for entry in one.entries if entry.answer}


def kill_before_the_answer_of(step: Step, monkeypatch: pytest.MonkeyPatch) -> None:
    """End the process, as SIGKILL does, once an act is done and before the record of the incident has its answer."""
    write = record.write

    def killed(one: Incident) -> None:
        if one.entries and one.entries[-1].step is step and one.entries[-1].answer:
            raise Killed
        write(one)

    monkeypatch.setattr(record, "write", killed)


def test_a_gpu_is_reset_once_though_gpuctl_is_killed_and_its_node_given_back(
    hosts: Hosts, rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need(slurm_programs.missing(), HOSTS)
    monkeypatch.setenv("GPUCTL_STATE_DIR", str(tmp_path / "state"))
    ill, well = hosts(2, machine="p5")
    for host in (ill, well):
        furnish(host)
    furnish_ill(ill)
    slurm_programs.install(ill, "gpu:h100:8")
    log, resumed = tmp_path / "job.log", tmp_path / "resumed"
    log.write_text(f"{ill.name}:812:901 [1] NCCL WARN Cuda failure 'uncorrectable ECC error encountered'\n")
    words = ("start", "alert", "--log", log, "--inventory", rig.inventory(), "--resume-with", f"touch {resumed}")

    kill_before_the_answer_of(Step.REPAIR, monkeypatch)
    with pytest.raises(Killed):
        invoke(*words, "--yes")
    monkeypatch.undo()
    monkeypatch.setenv("GPUCTL_STATE_DIR", str(tmp_path / "state"))
    drained = ill.run("scontrol", "--oneliner", "show", "node", ill.name).stdout
    [name] = record.names()
    assert f"Reason=gpuctl: incident {name}: the audit: GPU 1: " in drained

    result = invoke("resume", name, "--yes")
    assert result.exit_code == 0, result.output
    assert states(record.read(record.path_of(name))) == {
        **dict.fromkeys((Step.LOG, Step.NODES, Step.PREFLIGHT, Step.AUDIT), State.DONE),
        **dict.fromkeys((Step.DRAIN, Step.REPAIR, Step.REAUDIT, Step.GIVE_BACK, Step.RESUME), State.DONE),
    }
    assert f"{ill.name} passes again what it failed" in result.output
    assert ill.read(RESETS).count("\n") == 1
    assert "DRAIN" not in ill.run("scontrol", "--oneliner", "show", "node", ill.name).stdout
    assert resumed.exists()
    runs = [run_history.load(run) for run in run_history.names()]
    assert [(run.command[:2], run.exit_code) for run in runs] == [
        (["audit", "--inventory"], 0), (["nodes", "reset"], 0), (["nodes", "undrain"], 0), (["incident", "start"], 0),
    ]  # fmt: skip
    page = (tmp_path / "state/incidents" / f"{name}.md").read_text()
    for run in runs:
        assert run.name in page
