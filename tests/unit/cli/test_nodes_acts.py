"""Commands that act on nodes: what they refuse before anything is read, and the question before they act."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from gpuctl.cli import audit
from gpuctl.cli.app import app
from gpuctl.cli.nodes import act_options, drain, login
from gpuctl.core import run_history
from gpuctl.core.errors import InvalidInput
from gpuctl.domain.findings import fail, ok
from gpuctl.hosts.model import Target
from gpuctl.workflows import nodes_drain, nodes_exec, nodes_nvitop, nodes_service
from gpuctl.workflows.nodes_drain import Drain
from gpuctl.workflows.nodes_exec import Ran


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for the inventory, which Ansible reads once for all tests: gpuctl's cache is in it."""
    return tmp_path_factory.mktemp("shared")


@pytest.fixture(autouse=True)
def state(shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUCTL_STATE_DIR", str(tmp_path))
    monkeypatch.setenv("GPUCTL_CACHE_DIR", str(shared / "cache"))


@pytest.fixture(scope="module")
def inventory(shared: Path) -> Path:
    path = shared / "hosts.yml"
    path.write_text("all:\n  hosts:\n    n1:\n      ansible_host: 127.0.0.1\n      ansible_port: 9\n")
    return path


def refusal(command: click.Command, *words: str) -> str:
    result = CliRunner().invoke(command, list(words))
    assert isinstance(result.exception, InvalidInput), result.output
    return f"{result.exception}\n{result.exception.hint}"


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        (["--act", "drain", "-o", "json"], "a table"),
        (["--act", "drain", "--from", "x.log"], "queried now"),
        (["--context", "prod-eu"], "belong to --act drain"),
        (["--yes"], "belong to --act drain"),
    ],
)
def test_an_audit_acts_only_on_nodes_that_it_asks_and_shows(words: list[str], wrong: str) -> None:
    assert wrong in refusal(audit.audit, *words)


@pytest.mark.parametrize("words", [["kill", "n1", "0", "--force"], ["restart", "n1", "dcgm", "--force"]])
def test_force_needs_a_reason(words: list[str]) -> None:
    assert "--reason" in refusal(app, "nodes", *words)


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        (["nonsense"], "it can only be a pod"),
        (["No Name", "--context", "prod-eu"], "no name of a pod"),
        (["gpu:x"], "no name of a gpu"),
        (["pid:-1"], "no name of a pid"),
        (["3", "--context", "prod-eu"], "only a pod can be named"),
    ],
)
def test_a_word_that_names_no_work_is_refused_before_anything_is_read(
    words: list[str], wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(act_options, "one_host", lambda *_: pytest.fail("the inventory was read"))
    monkeypatch.setattr("gpuctl.edges.kube.cluster.connect", lambda _: pytest.fail("the cluster was queried"))
    assert wrong in refusal(app, "nodes", "kill", "n1", *words)


def test_the_device_plugin_needs_its_cluster_before_the_node_is_read(
    inventory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodes_service, "read_node", lambda *_: pytest.fail("the node was read"))
    assert "--context NAME" in refusal(app, "nodes", "restart", "n1", "device-plugin", "-i", str(inventory))


@pytest.mark.parametrize("command", ["ssh", "nvitop"])
@pytest.mark.parametrize(
    ("words", "rest"),
    [
        (["-i", "INVENTORY", "n1"], ()),
        (["n1", "--inventory=INVENTORY"], ()),
        (["n1", "-i", "INVENTORY", "--", "-m", "full"], ("-m", "full")),
        (["-i", "INVENTORY", "n1", "--", "-i", "x"], ("-i", "x")),
        (["-i", "INVENTORY", "--", "n1", "-i", "x"], ("-i", "x")),
        (["n1", "-i", "INVENTORY", "rm", "-i", "x"], ("rm", "-i", "x")),
    ],
)
def test_options_may_stand_on_both_sides_of_the_node(
    command: str, words: list[str], rest: tuple[str, ...], inventory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Any] = []

    def called(host: Target, argv: tuple[str, ...], *_: float) -> int:
        calls.append((host.name, argv))
        return 0

    monkeypatch.setattr(nodes_exec, "log_in", called)
    monkeypatch.setattr(nodes_nvitop, "run", called)
    result = CliRunner().invoke(app, ["nodes", command, *(one.replace("INVENTORY", str(inventory)) for one in words)])
    assert (calls, result.exit_code) == ([("n1", rest)], 0), result.output


@pytest.mark.parametrize("words", [["ssh", "n1", "-m"], ["nvitop", "n1", "-m"], ["nvitop", "-m"], ["exec", "-m", "x"]])
def test_an_option_of_another_program_is_no_option_of_ours(words: list[str]) -> None:
    result = CliRunner().invoke(app, ["nodes", *words])
    assert (result.exit_code, "No such option" in result.output) == (2, True)
    assert ("stand after --" in result.output) == ("n1" in words)


def test_without_a_command_nodes_are_shown() -> None:
    result = CliRunner().invoke(app, ["nodes", "--from", "missing.json"])
    assert "missing.json" in str(result.exception)


class StandinNodes:
    """Stand-in for nodes of a scheduler, by their states."""

    def __init__(self, states: Mapping[str, str]) -> None:
        self.states = dict(states)
        self.changed: list[str] = []

    def read(self, texts: Mapping[str, str], *, undo: bool) -> list[Drain]:
        """See Nodes."""
        return [Drain(node, "Slurm", self.states[node], reason) for node, reason in texts.items()]

    def change(self, drains: Sequence[Drain], run: str, *, undo: bool) -> list[Drain]:
        """See Nodes."""
        self.changed += [one.node for one in drains]
        return [Drain(one.node, one.scheduler, "done", one.reason, run) for one in drains]


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch) -> StandinNodes:
    made = StandinNodes({"gpu-1": "due", "gpu-2": "others", "gpu-3": "unknown"})
    monkeypatch.setattr(nodes_drain, "Nodes", lambda *_: made)
    return made


FINDINGS = [fail("xid", "gpu-1", "79"), fail("xid", "gpu-2", "79"), ok("xid", "gpu-3")]


def test_only_what_is_due_is_drained_and_recorded(nodes: StandinNodes, capsys: pytest.CaptureFixture[str]) -> None:
    assert drain.after_audit(FINDINGS, [], "", 1, yes=True) == 0
    assert nodes.changed == ["gpu-1"]
    [name] = run_history.names()
    run = run_history.load(name)
    assert (run.exit_code, list(run.hosts)) == (0, ["gpu-1"])
    assert (run.hosts["gpu-1"]["status"], run.hosts["gpu-1"]["reason"]) == ("done", "xid 79")
    assert "others" in capsys.readouterr().out


def test_without_consent_nothing_is_drained(nodes: StandinNodes) -> None:
    with pytest.raises(InvalidInput, match="there is no terminal"):
        drain.after_audit(FINDINGS, [], "", 1, yes=False)
    assert (nodes.changed, run_history.names()) == ([], [])


def test_a_node_whose_state_is_unknown_makes_the_exit_code_3(nodes: StandinNodes) -> None:
    assert drain.after_audit([fail("xid", "gpu-3", "79")], [], "", 1, yes=True) == 3
    assert nodes.changed == []


def test_healthy_nodes_are_not_drained(nodes: StandinNodes, capsys: pytest.CaptureFixture[str]) -> None:
    assert drain.after_audit([ok("xid", "gpu-1")], [], "", 1, yes=True) == 0
    assert "nothing to drain" in capsys.readouterr().out


def test_undrain_of_a_node_that_gives_no_answer_says_that_nothing_was_taken_back(
    nodes: StandinNodes, inventory: Path
) -> None:
    nodes.states = {"n1": "unknown"}
    result = CliRunner().invoke(app, ["nodes", "undrain", "n1", "-i", str(inventory), "--yes"])
    assert (result.exit_code, nodes.changed) == (3, [])
    assert "REASON" not in result.stdout
    assert "taken back" not in result.stdout
    assert result.stderr == "nothing was taken back: the drain of n1 is unknown\n"


def test_equal_outputs_are_shown_once(capsys: pytest.CaptureFixture[str]) -> None:
    rows: list[Any] = [Ran("a", 0, "same\n"), Ran("b", 0, "same\n"), Ran("c", 3, "other\n")]
    rows += [Ran("d", None, "", "lost"), Ran("e", None, "begun\n", "no answer within 5 s")]
    login._show(rows)
    expected = ["a, b:", "  same", "c (exit code 3):", "  other", "e (not run to its end):", "  begun"]
    assert capsys.readouterr().out.splitlines() == expected


def test_why_a_node_was_not_reached_is_printed_once(inventory: Path) -> None:
    """Nothing listens on the port discard of this machine."""
    result = CliRunner().invoke(app, ["nodes", "exec", "-i", str(inventory), "--", "true"])
    assert (result.exit_code, result.stdout, result.stderr.lower().count("refused")) == (3, "", 1), result.output


def test_programs_here_and_their_exit_codes(tmp_path: Path) -> None:
    inventory = tmp_path / "hosts.yml"
    inventory.write_text("all:\n  hosts:\n    me:\n      ansible_connection: local\n")
    words = ["nodes", "exec", "-i", str(inventory), "--", "sh", "-c", "echo $0; exit 4", "a b", "--token=hf_abcdefghij"]
    result = CliRunner().invoke(app, words)
    assert (result.exit_code, "  a b" in result.output) == (1, True), result.output
    [name] = run_history.names()
    run = run_history.load(name)
    assert run.hosts["me"]["status"] == "exit code 4"
    assert "hf_abcdefghij" not in str(run)
