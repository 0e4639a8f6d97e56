"""gpuctl incident storage: options, exit codes and reports; the measurement is on this machine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gpuctl.cli.incident.group import incident
from gpuctl.core.errors import InvalidInput
from gpuctl.hosts.model import Target
from gpuctl.workflows import audit_slurm
from gpuctl.workflows.incident import storage as flow
from tests.rig.storage_facts import facts, limit


def run(*words: str | Path) -> Result:
    return CliRunner().invoke(incident, ["storage", *map(str, words)])


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        (["--path", "data"], "not absolute"),
        (["--pods", "a"], "--pods is for pods"),
        (["--context", "c"], "which pods is not clear"),
        (["--context", "c", "--pods", "a", "--selector", "a=b"], "which pods is not clear"),
        (["--context", "c", "--pods", "a", "--slurm"], "--context cannot be combined with --slurm"),
        (["--nodes", "n1"], "are for nodes of Slurm"),
    ],
)
def test_options_that_exclude_each_other_are_refused_before_anything_is_asked(words: list[str], wrong: str) -> None:
    error = run(*words).exception
    assert isinstance(error, InvalidInput)
    assert wrong in error.wrong


@pytest.mark.parametrize("words", [["--path", ""], ["--window", "nan"], ["--read-mib", "0"], ["--read-seconds", "900"]])
def test_values_out_of_range_are_refused(words: list[str]) -> None:
    assert run(*words).exit_code == 2


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> flow.Answers:
    recorded = flow.Answers({"n1": facts(limits=[limit(250_000_000)])}, {"n2": "no answer within 58 s"})
    monkeypatch.setattr(flow, "ask_hosts", lambda _hosts, _options, _on_result: recorded)
    return recorded


@pytest.mark.usefixtures("answers")
def test_the_cause_stands_below_the_findings_and_a_node_without_an_answer_is_unknown() -> None:
    result = run("--path", "/data")
    assert result.exit_code == 3
    lines = result.stdout.splitlines()
    assert lines[0].startswith("FAIL     io-limit        n1: throughput of disk 259:1 is at the limit")
    assert "UNKNOWN  path            n2: not measured: no answer within 58 s" in lines
    assert "cause (proven): a throughput or IOPS limit is reached" in lines
    assert "at most 8 s and 512 MiB on each" in result.stderr


def test_all_trials_together_have_a_limit() -> None:
    assert [flow.StorageOptions(read_mib=512).shared(nodes).read_mib for nodes in (1, 32, 64, 99_999)] == [
        512,
        512,
        256,
        1,
    ]


@pytest.mark.usefixtures("answers")
def test_json_has_the_cause_and_the_measurements() -> None:
    report = json.loads(run("--path", "/data", "--output", "json").stdout)
    assert (report["cause"]["certainty"], report["cause"]["nodes"]) == ("proven", ["n1"])
    assert report["nodes"]["n1"]["trial"]["phases"][0]["name"] == "sequential"


@pytest.mark.usefixtures("answers")
def test_a_node_of_slurm_without_a_host_is_unknown_and_not_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    selection = audit_slurm.Selection([Target("n1")], {"n3": audit_slurm.NO_HOST})
    monkeypatch.setattr(audit_slurm, "select", lambda _partition, _nodes, _hosts: selection)
    result = run("--slurm", "--partition", "gpu", "--path", "/data")
    assert (result.exit_code, f"n3: not measured: {audit_slurm.NO_HOST}" in result.stdout) == (3, True)
