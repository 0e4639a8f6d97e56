"""A training in two pods that are this machine: heard, through broken connections, to its end or its first failure."""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpuctl.cluster.train import flow, follow, watch
from gpuctl.cluster.train.watch import Training, TrainingState, Watch
from gpuctl.core.errors import Unreachable
from gpuctl.domain.kube_errors import Forbidden
from gpuctl.remote import detached
from tests.rig.local_pods import Pod, kill, later, python, until

MARK = "of-no-process"
WAITS = "import time; print('waits', flush=True); time.sleep(600)"


class Said:
    """Keeps what is told; `on` is called with each line, `noted` with each note."""

    def __init__(
        self, on: Callable[[str], object] = lambda _: None, noted: Callable[[str], object] = lambda _: None
    ) -> None:
        self.lines: list[str] = []
        self.notes: list[str] = []
        self.on, self.noted = on, noted

    def printed(self, pod: str, line: str) -> None:
        self.lines.append(f"{pod}: {line}")
        self.on(line)

    def note(self, pod: str, words: str) -> None:
        self.notes.append(f"{pod}: {words}")
        self.noted(words)


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "SETTLE_S", 0.3)
    monkeypatch.setattr(follow, "PAUSE_S", 0.1)


@pytest.fixture
def pods(tmp_path: Path) -> Iterator[list[Pod]]:
    found = [Pod(tmp_path / f"runs-{rank}", f"lab-{rank}") for rank in range(2)]
    yield found
    for pod in found:
        pod.broken = False
        for run in detached.list_runs(pod.target):
            detached.stop(pod.target, run.name)


def keep(pod: Pod, text: str) -> None:
    """Each with a token of its own: on one machine, the end of one would be that of all."""
    detached.start(pod.target, python(text), detached.Label("run", "ann@desk", "train.py"))


def begin(pods: list[Pod], *programs: str) -> Training:
    for pod, text in zip(pods, programs, strict=True):
        keep(pod, text)
    return Training("run", MARK, [pod.target for pod in pods])


def hear(training: Training, said: Said, gone: Callable[[str], str] = lambda _: "") -> TrainingState:
    end = time.monotonic() + 60
    return Watch(replace(training, gone=gone), said).until_finished(lambda: time.monotonic() > end)


def test_a_training_that_ends_well_in_all_pods_is_well(pods: list[Pod]) -> None:
    said = Said()
    heard = hear(begin(pods, "print('a')", "print('b', end='')"), said)
    assert heard.first is None
    assert sorted(heard.exits) == ["lab-0", "lab-1"]
    assert sorted(said.lines) == ["lab-0: a", "lab-1: b"]


def test_the_first_pod_that_fails_is_named_though_the_others_hang(pods: list[Pod]) -> None:
    training = begin(pods, WAITS, "import sys; print('out of memory'); sys.exit(3)")
    heard = hear(training, Said())
    assert heard.first
    assert (heard.first.pod, heard.first.description) == ("lab-1", "ended with exit code 3")
    assert heard.first.last == ["out of memory"]
    gone = flow.end(training, [pod.target for pod in pods])
    assert [(each.pod, each.confirmed) for each in gone] == [("lab-0", True), ("lab-1", True)]
    assert not detached.list_runs(pods[0].target)[0].running


def test_of_two_that_fail_the_earlier_is_the_first(pods: list[Pod], tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(watch, "SETTLE_S", 20.0)
    ended = tmp_path / "runs-1/run/state"
    after = f"import sys, time\nwhile '\"at\"' not in open({str(ended)!r}).read():\n    time.sleep(0.1)\nsys.exit(2)"
    first = "import sys; sys.exit(1)"
    keep(pods[1], first)
    keep(pods[0], after)
    heard = hear(Training("run", MARK, [pod.target for pod in pods]), Said())
    assert [heard.first and heard.first.pod, len(heard.failures)] == ["lab-1", 2]


def test_a_pod_that_only_lost_another_one_is_not_blamed_though_it_ended_first(pods: list[Pod], tmp_path: Path) -> None:
    """As torchrun 1.13 does: the pod at fault notices its failed process last."""
    texts = [Path(f"tests/data/torchrun/1.13-{name}.txt").absolute() for name in ("lost-peer", "exception")]
    ended = tmp_path / "runs-0/run/state"
    wait = f"import time\nwhile '\"at\"' not in open({str(ended)!r}).read():\n    time.sleep(0.1)\ntime.sleep(1)\n"
    fails = "import sys\nprint(open({!r}).read())\nsys.exit(1)"
    keep(pods[0], fails.format(str(texts[0])))
    keep(pods[1], wait + fails.format(str(texts[1])))
    heard = hear(Training("run", MARK, [pod.target for pod in pods]), Said())
    assert heard.first
    assert (heard.first.pod, len(heard.failures)) == ("lab-1", 2)
    assert heard.first.exception == "RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB"
    assert heard.first.last[-1] == heard.first.exception


def test_a_connection_that_breaks_is_reported_and_nothing_is_lost_or_said_twice(
    pods: list[Pod], tmp_path: Path
) -> None:
    go = tmp_path / "go"

    def cut(line: str) -> None:
        if line == "2":
            pods[0].broken = True
            kill(pods[0].processes[-1].process.pid)

    def mend(note: str) -> None:
        if note == "it does not answer; trying again":
            pods[0].broken = False
        elif note == "it answers again":
            go.touch()

    said = Said(cut, mend)
    text = (
        "import os, time\nfor n in range(9):\n    print(n, flush=True)\n"
        f"    while n == 2 and not os.path.exists({str(go)!r}):\n        time.sleep(0.05)"
    )
    heard = hear(begin(pods, text, "print('b')"), said)
    assert heard.first is None
    assert [line for line in said.lines if line.startswith("lab-0")] == [f"lab-0: {n}" for n in range(9)]
    assert said.notes[-1] == "lab-0: it answers again"


def test_a_pod_that_is_gone_is_the_cause_though_another_one_failed_for_it_before_that_was_known(
    pods: list[Pod], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "SETTLE_S", 20.0)
    training = begin(pods, "import sys; sys.exit(1)", WAITS)
    pods[1].broken = True

    def gone(pod: str) -> str:
        until(lambda: not detached.list_runs(pods[0].target)[0].running)
        return f"{pod} is gone"

    heard = Watch(replace(training, gone=gone), Said()).until_finished(lambda: False)
    assert heard.first
    assert (heard.first.pod, heard.first.description, len(heard.failures)) == ("lab-1", "lab-1 is gone", 2)


def test_a_pod_of_which_nobody_can_be_asked_is_tried_again(pods: list[Pod]) -> None:
    training = begin(pods, "print('a')", "print('b')")
    pods[1].broken = True
    asked: list[str] = []

    def gone(pod: str) -> str:
        asked.append(pod)
        pods[1].broken = len(asked) < 3
        raise Unreachable("ask", "no answer")

    assert hear(training, Said(), gone).first is None
    assert len(asked) == 3


@pytest.mark.parametrize("for_ever", [False, True])
def test_a_server_that_refuses_for_a_moment_is_asked_again_and_one_that_goes_on_is_reported(
    pods: list[Pod], monkeypatch: pytest.MonkeyPatch, for_ever: bool
) -> None:
    monkeypatch.setattr(follow, "SHUT_OUT_S", 0.2 if for_ever else 60.0)
    training = begin(pods, "print('a')", "print('b')")
    start, refusals = training.pods[0].start, iter([True] * (1000 if for_ever else 2))

    def refuses(*given: Any) -> Any:
        if next(refusals, False):
            raise Forbidden("exec", "you may not")
        return start(*given)

    heard = hear(replace(training, pods=[replace(training.pods[0], start=refuses)]), Said())
    assert (heard.lost, len(heard.exits)) == (("lab-0: you may not", 0) if for_ever else ("", 1))


def test_what_breaks_in_a_listener_ends_the_watch(pods: list[Pod]) -> None:
    def broken(*_: Any) -> Any:
        raise ValueError("no such thing")

    there = replace(pods[0].target, start=broken)
    assert hear(Training("run", MARK, [there]), Said()).lost == "lab-0: ValueError: no such thing"


def test_a_keeper_that_was_killed_is_a_failure_that_is_reported(pods: list[Pod], tmp_path: Path) -> None:
    training = begin(pods, WAITS, WAITS)
    state = json.loads((tmp_path / "runs-1/run/state").read_text())
    later(0.3, lambda: kill(state["supervisor"]))
    heard = hear(training, Said())
    assert heard.first
    assert heard.first.pod == "lab-1"
    assert heard.first.description == watch.LOST


def test_broken_off_it_ends_at_once_and_everywhere(pods: list[Pod]) -> None:
    asked = threading.Event()
    training = begin(pods, WAITS, WAITS)
    heard = Watch(training, Said(lambda _: asked.set())).until_finished(asked.is_set)
    assert (heard.first, heard.exits) == (None, {})
    assert all(each.confirmed for each in flow.end(training, [pod.target for pod in pods]))


def test_a_pod_that_does_not_answer_is_not_confirmed_to_have_ended(pods: list[Pod]) -> None:
    training = begin(pods, WAITS, WAITS)
    pods[1].broken = True
    gone = flow.end(training, [pod.target for pod in pods])
    assert [(each.pod, each.confirmed, each.wrong) for each in gone] == [
        ("lab-0", True, ""),
        ("lab-1", False, "it does not answer"),
    ]
    for why, confirmed in ((flow.GONE[0], True), ("the pod is being deleted", False)):
        [_, gone_] = flow.end(replace(training, gone=lambda _, why=why: why), [pod.target for pod in pods])  # type: ignore[misc]
        assert gone_.confirmed is confirmed


def test_one_that_somebody_else_ends_has_not_ended_well_though_its_exit_code_is_0(pods: list[Pod]) -> None:
    text = "import signal, sys, time; signal.signal(15, lambda *_: sys.exit()); print(1, flush=True); time.sleep(600)"
    training = begin(pods, text, "print('b')")
    heard = hear(training, Said(lambda line: line == "1" and later(0, lambda: detached.stop(pods[0].target, "run"))))
    assert heard.first
    assert (heard.first.pod, heard.first.description) == ("lab-0", "ended on request, ended with exit code 0")


def test_of_pdsh_the_pod_whose_part_failed_is_named_with_its_own_lines(pods: list[Pod]) -> None:
    host = "lab-1"  # as pdsh 2.34 shortens names
    text = (
        f"import time\nprint('lab-0: step 1')\nprint('{host}: killed')\n"
        f"print('pdsh@lab-0: {host}: ssh exited with exit code 9', flush=True)\ntime.sleep(600)"
    )
    keep(pods[0], text)
    heard = hear(Training("run", MARK, [pods[0].target]), Said())
    assert heard.first
    assert (heard.first.pod, heard.first.description) == ("lab-1", "ended with exit code 9")
    assert heard.first.last == ["killed"]


def test_where_ssh_lost_a_pod_it_is_asked_whether_that_is_gone(pods: list[Pod]) -> None:
    text = "import time\nprint('pdsh@lab-0: lab-1: ssh exited with exit code 255', flush=True)\ntime.sleep(600)"
    keep(pods[0], text)
    training = Training("run", MARK, [pods[0].target])
    heard = hear(training, Said(), lambda pod: "it is gone" if pod == "lab-1" else "")
    assert [(each.pod, each.description) for each in heard.failures] == [("lab-1", "it is gone")]
    assert [each.description for each in hear(training, Said()).failures] == [watch.LOST_SSH]


def test_a_progress_bar_is_seen_while_it_goes_on_and_takes_one_of_the_last_lines() -> None:
    said: list[str] = []
    lines = follow.Lines(said.append)
    for part in (b"\r 10%", b"\r 20%\r", b"\n", b"done\r\n", b"\n", b"rest"):
        lines.add(part)
    lines.finish()
    assert said == [" 10%\r", " 20%", "done", "", "rest"]
    heard = Watch(Training("run", MARK, []), Said())
    heard._last["lab-0"] = deque(maxlen=2)
    for line in ("one", " 10%\r", " 20%\r"):
        heard._line("lab-0", line)
    assert list(heard._last["lab-0"]) == ["one", " 20%\r"]


def test_a_line_without_an_end_is_shown_in_parts() -> None:
    said: list[str] = []
    lines = follow.Lines(said.append)
    for _ in range(3):
        lines.add(b"x" * (follow.MOST_OF_A_LINE - 1))
    assert [len(each) for each in said] == [2 * (follow.MOST_OF_A_LINE - 1)]


def test_lines_survive_any_cut_of_the_output(pods: list[Pod]) -> None:
    said = Said()
    text = "import sys, time\nfor part in ('a', 'b\\nc', '\\n'):\n    print(part, end='', flush=True); time.sleep(0.3)"
    hear(begin(pods, text, ""), said)
    assert said.lines == ["lab-0: ab", "lab-0: c"]
