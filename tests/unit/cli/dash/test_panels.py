"""Each panel shows what its command prints."""

from __future__ import annotations

import shlex
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from click.testing import CliRunner

from gpuctl.cli.app import app
from gpuctl.cli.dash.command import dash
from gpuctl.cli.dash.model import NEVER, Detail, Panel, Program, View
from gpuctl.cli.dash.panels.checks import ChecksPanel
from gpuctl.cli.dash.panels.nccl import NcclPanel
from gpuctl.cli.dash.panels.nodes import NodesPanel
from gpuctl.cli.dash.panels.pods import PodsPanel
from gpuctl.cli.dash.panels.reservations import ReservationsPanel
from gpuctl.cli.dash.panels.runs import RunsPanel, undo
from gpuctl.cli.dash.panels.subnets import SubnetsPanel
from gpuctl.cli.dash.request import DashRequest
from gpuctl.cli.shared.options import build as build_request
from gpuctl.core import run_history
from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.core.run_history import RunRecord
from gpuctl.domain.findings import Finding, Verdict, fail, ok
from gpuctl.domain.kube_errors import Forbidden
from gpuctl.edges.unix_socket import serving
from gpuctl.hosts.model import HostResult, Target
from gpuctl.kube.pod import Scope
from gpuctl.kube.pod_list import PodDetail, PodReader
from gpuctl.kube.pod_rows import PodRow
from gpuctl.nccl import history
from gpuctl.nodes import facts_file
from gpuctl.nodes.model import Fleet, Node, SchedulerUse
from gpuctl.reservations.demo import Demo
from gpuctl.reservations.rules.model import Caller
from gpuctl.subnets import flow as subnets
from gpuctl.subnets.model import Listing
from gpuctl.workflows import nodes_kube, nodes_slurm
from gpuctl.workflows.nodes_live import LiveNodes
from gpuctl.workflows.nodes_slurm import SlurmRequest
from tests.rig.gpu_user_facts import NOW, facts, process
from tests.rig.nccl.builders import ended
from tests.rig.subnet_model import listing, subnet

XID_79 = "[ 5.000001] NVRM: Xid (PCI:0000:66:00): 79, GPU has fallen off the bus.\n"


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUCTL_STATE_DIR", str(tmp_path / "state"))


def request(*sources: Path, context: str = "", socket: Path = Path("/no/socket")) -> DashRequest:
    return DashRequest("nodes", None, "", context, sources, 5, 60, "eu-west-1", "", socket)


def printed(command: str) -> list[str]:
    """Lines that a command prints, without the empty ones."""
    result = CliRunner().invoke(app, shlex.split(command)[1:])
    assert not isinstance(result.exception, GpuctlError), result.exception
    return [line.rstrip() for line in result.output.splitlines() if line.strip()]


def drawn(panel: Panel) -> list[str]:
    """Lines of a panel after a reading, without the empty ones."""
    panel.read()
    view = panel.view()
    texts = [view.head, *(line.text for line in view.lines), *view.summary]
    return [text.rstrip() for text in texts if text.strip()]


def press(panel: Panel, key: str, text: str = "") -> None:
    [entry] = [entry for entry in panel.keys if entry.key == key]
    entry.act(text)


@pytest.mark.parametrize("keys", ["", "m", "s", "ss", "im"])
def test_nodes_are_those_of_the_command(tmp_path: Path, keys: str) -> None:
    path = tmp_path / "facts.json"
    fleet = {"b": facts(process(7, login_uid=1001), on={3: [7]}), "a": facts(), "c": facts(pid_namespace="nested")}
    facts_file.save(path, Fleet(fleet, {"lost": "no route"}, NOW))
    panel = NodesPanel(request(path))
    for key in keys:
        press(panel, key)
    assert sorted(drawn(panel)) == sorted(printed(panel.command))


def test_no_node_is_unknown_once_it_was_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes_kube, "ask", lambda *_: [])
    panel = NodesPanel(request(context="prod-eu"))
    assert not panel.view().lines
    panel.read()
    view = panel.view()
    assert [line.level for line in view.lines if "no node has GPUs" in line.text] == ["UNKNOWN"]
    assert view.read_at


def test_nodes_of_slurm_are_read_as_the_command_reads_them(monkeypatch: pytest.MonkeyPatch) -> None:
    requests = []

    def read(request: SlurmRequest, _: object) -> list[Node]:
        requests.append(request)
        return [Node("h2", "h200", total=2, now=NOW, scheduler=SchedulerUse(1, source="slurm"))]

    monkeypatch.setattr(nodes_slurm, "read", read)
    panel = NodesPanel(replace(request(), slurm=True, partition="train", via="scontrol"))
    assert panel.read() == 5
    assert panel.command == "gpuctl nodes --slurm --partition train --via scontrol"
    assert requests == [SlurmRequest("train", "", "scontrol")]
    assert panel.view().lines[0].subject == "h2"
    detail = panel.detail("h2")
    assert detail is not None
    assert detail.command == f"{panel.command} --nodes h2"
    checks = ChecksPanel(replace(request(), slurm=True, partition="train"))
    assert checks.command == "gpuctl audit --slurm --partition train --timeout 60"


def test_the_screen_in_a_browser_has_the_same_arguments(tmp_path: Path) -> None:
    source = tmp_path / "a b.json"
    source.touch()
    asked = replace(request(source), slurm=True, nodes="h[1-2]", panel="runs", web="127.0.0.1:0")
    with dash.make_context("dash", asked.arguments[1:]) as context:
        made = build_request(DashRequest, context.params)
    assert asked.arguments[0] == "dash"
    assert made == replace(asked, web="")


def test_options_that_no_node_matches_are_named(tmp_path: Path) -> None:
    facts_file.save(tmp_path / "facts.json", Fleet({"a": facts()}, {}, NOW))
    panel = NodesPanel(request(tmp_path / "facts.json"))
    panel.read()
    press(panel, "m")
    assert "no node matches the options of the command" in [line.text for line in panel.view().lines]


def test_a_node_that_hangs_after_an_answer_is_unknown_and_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    released, clock = threading.Event(), [NOW]

    def ask(hosts: Sequence[Target], on_result: Callable[[HostResult], None]) -> None:
        for host in hosts:
            if host.name == "gpu-2" and clock[0] > NOW:
                released.wait(30)
            on_result(HostResult(host.name, answer={"use": facts()}))

    monkeypatch.setattr(time, "time", lambda: float(clock[0]))
    live = LiveNodes([Target(name) for name in ("gpu-1", "gpu-2")], ask)
    panel = NodesPanel(replace(request(), inventory="prod", every=1), live)
    panel.read()
    assert len(panel.view().summary) == 1
    asked = clock[0] = NOW + 60
    live.start()
    live.collect(0.5, lambda _: None)
    clock[0] = NOW + 100
    view = panel.view()
    [head, *_] = [line for line in view.lines if line.subject == "gpu-2"]
    first, then = (time.strftime("%H:%M:%S", time.localtime(at)) for at in (NOW, asked))
    assert head.level == "UNKNOWN"
    assert f"values of {first}; asked at {then}, no answer yet" in head.text
    assert next(line.level for line in view.lines if line.subject == "gpu-1") == ""
    assert "0 of 8 GPUs in use; 8 idle" in view.summary[0]
    assert view.summary[1] == f"UNKNOWN: 1 node late, values from {first}, not counted above"
    detail = panel.detail("gpu-2")
    assert detail is not None
    assert first in detail.lines[0].text
    released.set()


def test_findings_are_those_of_the_command_with_an_explanation(tmp_path: Path) -> None:
    log = tmp_path / "dmesg.txt"
    log.write_text(XID_79)
    panel = ChecksPanel(request(log))
    assert panel.read() == NEVER
    [first, *_] = panel.view().lines
    assert first.level == "FAIL"
    assert first.text in [line.strip() for line in printed(panel.command)]
    detail = panel.detail(first.subject)
    assert detail is not None
    assert any("fell off" in line.text for line in detail.lines)
    [explain] = [key.act for key in panel.keys if key.key == "e"]
    explained = explain(first.subject)
    assert isinstance(explained, Detail)
    assert [line.text.rstrip() for line in explained.lines if line.text] == printed(explained.command)


def test_checks_of_a_context_start_no_pod() -> None:
    panel = ChecksPanel(request(context="prod-eu"))
    with pytest.raises(InvalidInput, match="this screen starts none") as error:
        panel.read()
    assert panel.command == "gpuctl audit --context prod-eu --probe"
    assert panel.command in error.value.hint


@pytest.mark.parametrize("key", ["m", "i"])
def test_a_key_whose_command_is_refused_changes_nothing(key: str) -> None:
    panel = NodesPanel(request(context="prod-eu"))
    with pytest.raises(InvalidInput, match="--context cannot be combined"):
        press(panel, key)
    assert panel.command == "gpuctl nodes --context prod-eu"


@pytest.fixture
def prod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An inventory with a name in the user's configuration."""
    monkeypatch.setenv("GPUCTL_CONFIG_DIR", str(tmp_path / "config"))
    path = tmp_path / "config/inventories/prod.yml"
    path.parent.mkdir(parents=True)
    path.write_text("all: {hosts: {gpu-1: }}\n")
    return path


@pytest.mark.parametrize(
    ("typed", "undone"),
    [
        (["tune-nodes", "-iprod"], "gpuctl rollback --inventory prod --limit gpu-1"),
        (["tune-nodes", "-i", "dev", "--inventory=prod", "-l", "x"], "gpuctl rollback --inventory prod --limit gpu-1"),
        (["tune-nodes", "-yi", "/v/gpuctl"], "gpuctl rollback --inventory /v/gpuctl --limit gpu-1"),
        (["gpuctl", "tune-nodes"], "gpuctl rollback --limit gpu-1"),
        (["bootstrap", "gpu-node", "-iprod"], "gpuctl rollback --inventory prod --limit gpu-1 --only gpu_stack"),
    ],
)
def test_the_undo_of_a_run_has_its_inventory(prod: Path, typed: list[str], undone: str) -> None:
    run = RunRecord("r", "2026-01-01T00:00:00Z", "ann@desk", typed, 0, {"gpu-1": {}})
    assert [line.command for line in undo(run)][-1] == undone


@pytest.mark.parametrize(
    ("typed", "hosts", "reason"),
    [
        (["tune-nodes", "-i", "hosts/prod.yml"], ["gpu-1"], "depends on the folder"),
        (["tune-nodes", "-i", "here"], ["gpu-1"], "depends on the folder"),
        (["tune-nodes", "-i", "prod"], [], "names no host"),
        (["tune-nodes", "--gone", "-iprod"], ["gpu-1"], "No such option"),
        (["tune-nodes", "--check", "-iprod"], ["gpu-1"], "changed nothing"),
    ],
)
def test_an_unknown_undo_is_no_command(
    prod: Path, typed: list[str], hosts: list[str], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = prod.parents[2] / "work"
    (folder / "inventories").mkdir(parents=True)
    (folder / "inventories/here.yml").write_bytes(prod.read_bytes())
    monkeypatch.chdir(folder)
    run = RunRecord("r", "2026-01-01T00:00:00Z", "ann@desk", typed, 0, {host: {} for host in hosts})
    lines = list(undo(run))
    assert not any(line.command for line in lines)
    assert reason in lines[0].text


@pytest.mark.usefixtures("prod")
def test_runs_are_those_of_the_command_with_their_undo() -> None:
    command = ["tune-nodes", "--inventory", "prod"]
    hosts = {"gpu-1": {"host": "gpu-1", "record": "000003"}}
    run_history.save(RunRecord("20260101-000000-1", "2026-01-01T00:00:00Z", "ann@desk", command, 0, hosts))
    run_history.save(RunRecord("20260102-000000-1", "2026-01-02T00:00:00Z", "ann@desk", ["nodes", "kill"], None, {}))
    panel = RunsPanel(request())
    head, newest, oldest = drawn(panel)
    assert [head, oldest, newest] == printed(panel.command)
    detail = panel.detail("20260101-000000-1")
    assert detail is not None
    texts = [line.text for line in detail.lines]
    assert "  gpuctl rollback --inventory prod --limit gpu-1  # also what other runs changed there" in texts
    assert "  # record of this run on gpu-1: 000003" in texts
    assert [text for text in texts[texts.index("") + 1 :] if text] == printed(detail.command)
    killed = panel.detail("20260102-000000-1")
    assert killed is not None
    assert killed.lines[1].text == "  no command takes this run back, or it changed nothing"


@pytest.fixture
def socket(tmp_path: Path) -> Iterator[Path]:
    demo = Demo()
    with serving(tmp_path / "s", lambda _, call: demo.service.answer(Caller("ada", "vision"), call)):
        yield tmp_path / "s"


def test_undo_is_refused_in_production_and_without_a_command_its_reason_is_shown(prod: Path) -> None:
    for name, words in (("20260101-000000-1", ["tune-nodes", "-i", "prod"]), ("20260102-000000-1", ["nodes", "kill"])):
        run_history.save(RunRecord(name, "2026-01-01T00:00:00Z", "ann@desk", words, 0, {"gpu-1": {}}))
    panel = RunsPanel(request())
    panel.read()
    [key] = panel.keys
    with pytest.raises(InvalidInput, match="prod is production"):
        key.act("20260101-000000-1")
    reasons = key.act("20260102-000000-1")
    assert isinstance(reasons, Detail)
    assert "no command takes this run back" in reasons.lines[0].text
    allowed = RunsPanel(replace(request(), allow_changes=True))
    allowed.read()
    program = allowed.keys[0].act("20260101-000000-1")
    assert isinstance(program, Program)
    assert list(program.argv) == ["gpuctl", "rollback", "--inventory", "prod", "--limit", "gpu-1"]
    assert program.question.endswith("Run `gpuctl rollback --inventory prod --limit gpu-1`?")


@pytest.mark.usefixtures("prod")
def test_the_question_of_an_undo_names_other_runs_that_it_undoes() -> None:
    at = "2026-01-01T00:00:00Z"
    hosts: dict[str, dict[str, str]] = {"gpu-1": {}, "gpu-2": {}}
    words = ["tune-nodes", "-i", "prod"]
    run_history.save(RunRecord("20260101-000000-1", at, "ann@desk", words, None, hosts))
    run_history.save(RunRecord("20260102-000000-1", at, "ann@desk", ["bootstrap", "gpu-node", "-i", "x"], 0, hosts))
    run_history.save(RunRecord("20260103-000000-1", at, "ann@desk", words, 0, {"gpu-3": {}}))
    panel = RunsPanel(replace(request(), allow_changes=True))
    panel.read()
    assert "other runs there are undone, too" in panel.keys[0].does
    program = panel.keys[0].act("20260101-000000-1")
    assert isinstance(program, Program)
    assert program.question.splitlines()[:-1] == [
        "It restores the values from before gpuctl on 2 hosts: changes of other runs there are lost, too.",
        "The run has no exit code: it may still be changing these hosts.",
        "Later runs on these hosts: 20260102-000000-1 (bootstrap gpu-node).",
    ]
    newest = panel.keys[0].act("20260103-000000-1")
    assert isinstance(newest, Program)
    assert newest.question.splitlines()[0].startswith("It restores the values from before gpuctl on 1 host:")
    assert "Later runs" not in newest.question


class Cluster:
    """Two pods of a cluster; `forbidden`: not those of all namespaces."""

    def __init__(self, scope: Scope, forbidden: bool = False) -> None:
        self.context, self.namespace = scope.context or "prod-eu", scope.namespace or "train"
        self.scope, self.forbidden = scope, forbidden

    def list_all(self) -> list[PodRow]:
        if self.forbidden:
            raise Forbidden("list pods", "ann may not list pods", "ask for a role")
        fault = fail("scheduling", "b/stuck", "no node takes it: 0/2 nodes are available")
        return [PodRow("b", "stuck", "Pending", 0, 8, "", 60.0, [fault]), *self.list_namespace()]

    def list_namespace(self) -> list[PodRow]:
        return [PodRow("train", "rank-0", "Running", 1, 8, "gpu-1", 60.0, [ok("pod", "train/rank-0")])]

    def detail(self, name: str, namespace: str = "") -> PodDetail:
        [row] = [row for row in self.list_all() if row.name == name]
        assert namespace == row.namespace
        return PodDetail(row, row.findings, ["status: Pending"], ["2026-01-01 Warning FailedScheduling: full"])


def pods_panel(forbidden: bool = False, context: str = "") -> PodsPanel:
    return PodsPanel(request(context=context), lambda scope: cast("PodReader", Cluster(scope, forbidden)))


def test_pods_are_the_worst_first_with_their_events() -> None:
    panel = pods_panel()
    head, first, second, total = drawn(panel)
    assert head.split() == ["NAMESPACE", "POD", "STATUS", "RESTARTS", "GPUS", "NODE", "AGE", "WHY"]
    assert first.split()[:5] == ["b", "stuck", "Pending", "0", "8"]
    assert "no node takes it" in first
    assert second.split()[:6] == ["train", "rank-0", "Running", "1", "8", "gpu-1"]
    assert total == (
        "prod-eu (production; k9s opens read-only): 2 pods, 1 FAIL, 8 GPUs on nodes, 8 GPUs waiting for a node"
    )
    assert panel.command == "gpuctl kube pods --all-namespaces --context prod-eu"
    assert [line.level for line in panel.view().lines] == ["FAIL", ""]
    detail = panel.detail("b/stuck")
    assert detail is not None
    assert "  2026-01-01 Warning FailedScheduling: full" in [line.text for line in detail.lines]
    assert detail.command == "gpuctl kube pods stuck --namespace b --context prod-eu"
    commands = [line.command for line in detail.lines if line.command]
    assert commands[0] == "gpuctl kube pod logs stuck --namespace b --context prod-eu"


def test_without_the_right_to_all_namespaces_that_of_the_context_is_shown() -> None:
    panel = pods_panel(forbidden=True)
    assert drawn(panel)[-1] == "note: only the namespace train: ann may not list pods"
    assert panel.command == "gpuctl kube pods --context prod-eu --namespace train"
    assert drawn(panel)[-1] == "note: only the namespace train: ann may not list pods"


def test_a_namespace_is_chosen_and_all_again() -> None:
    panel = pods_panel()
    panel.read()
    press(panel, "n", " train ")
    assert not panel.view().lines
    assert panel.command == "gpuctl kube pods --context prod-eu --namespace train"
    panel.read()
    assert [line.subject for line in panel.view().lines] == ["train/rank-0"]
    press(panel, "n", "")
    assert panel.command == "gpuctl kube pods --context prod-eu --all-namespaces"


def test_k9s_is_opened_on_the_context_and_namespace_of_the_pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    panel = pods_panel(context="dev-eu")
    [key] = [key for key in panel.keys if key.key == "o"]
    with pytest.raises(InvalidInput, match="not read yet"):
        key.act("")
    panel.read()
    (tmp_path / "k9s").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    program = key.act("b/stuck")
    assert isinstance(program, Program)
    assert list(program.argv)[:5] == ["k9s", "--context", "dev-eu", "--namespace", "b"]
    assert "--readonly" in program.argv
    assert not program.question


def test_reservations_are_those_of_the_commands(socket: Path) -> None:
    printed(f"gpuctl reserve --gpus 16 --hours 1 --name sweep --no-wait --socket {socket}")
    printed(f"gpuctl reserve --gpus 8 --hours 1 --no-wait --socket {socket}")
    panel = ReservationsPanel(request(socket=socket))
    texts = [text.strip() for text in drawn(panel)]
    for name in ("list", "queue", "availability"):
        assert set(printed(f"gpuctl reservations {name} --socket {socket}")) <= set(texts)
    assert texts[-1] == "0 of 16 GPUs free"
    [subject, *_] = [line.subject for line in panel.view().lines if line.subject]
    detail = panel.detail(subject)
    assert detail is not None
    assert f"  gpuctl reservations cancel {subject} --socket {socket}" in [line.text for line in detail.lines]
    press(panel, "m")
    assert panel.command == f"gpuctl reservations list --socket {socket} --mine"


def test_no_service_is_the_error_of_the_command() -> None:
    with pytest.raises(GpuctlError, match="cannot ask the reservation service"):
        ReservationsPanel(request()).read()


def test_subnets_are_those_of_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    made = listing(subnet("10.0.0.0/26", addresses=[f"10.0.0.{n}" for n in range(4, 63)]))
    monkeypatch.setattr(subnets, "connect", lambda *_: None)
    monkeypatch.setattr(subnets, "list_subnets", lambda *_: made)
    panel = SubnetsPanel(request())
    texts = printed(panel.command)
    assert set(drawn(panel)[:-1]) <= set(texts)
    detail = panel.detail(made.subnets[0].name)
    assert detail is not None
    assert {line.text.rstrip() for line in detail.lines} - {""} <= set(texts)
    press(panel, "v", "vpc-1")
    assert panel.command == "gpuctl subnets --region eu-west-1 --vpc vpc-1"


def test_subnets_of_another_command_are_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    made, panel = listing(subnet("10.0.0.0/26")), SubnetsPanel(request())
    monkeypatch.setattr(subnets, "connect", lambda *_: None)
    monkeypatch.setattr(subnets, "list_subnets", lambda *_: made)
    panel.read()
    assert panel.view().lines
    press(panel, "v", "vpc-1")
    assert panel.view() == View()

    def list_while_a_key_is_pressed(*_: object) -> Listing:
        press(panel, "v", "vpc-2")
        return made

    monkeypatch.setattr(subnets, "list_subnets", list_while_a_key_is_pressed)
    assert panel.read() == 0
    assert panel.view() == View()


def test_measurements_are_those_of_the_command() -> None:
    finding = Finding("baseline", "4 GiB", Verdict.FAIL, "300 of 365 GB/s", {"busbw_gbs": 300.0}, "isolate")
    number = history.save_results("pairs", "prod", [ended("a", "b", busbw=300)], [finding])
    panel = NcclPanel(request())
    assert drawn(panel)[:-1] == printed(panel.command)
    detail = panel.detail(str(number))
    assert detail is not None
    assert "baseline" in "\n".join(line.text for line in detail.lines)
