"""Logs are read to their end, each line once, whatever breaks in between; the cluster is a script of answers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gpuctl.core.errors import GpuctlError, Unreachable
from gpuctl.edges.kube import watch
from gpuctl.edges.kube.cancel import Stop
from gpuctl.edges.kube.cluster import Kind, Request

AT = "2026-01-01T00:00:00."
BROKEN = Unreachable("read the log", "the connection was lost")


class Scripted:
    """A cluster whose log answers, one after the other, are lists of lines; an error among them breaks the answer."""

    patience_s = 0.2

    def __init__(self, *answers: list[Any]) -> None:
        self.answers = list(answers)
        self.asked: list[dict[str, str]] = []

    def kind(self, api_version: str, kind: str) -> Kind:
        return Kind(api_version, kind, "pods", True)

    def path_of(self, kind: Kind, name: str = "") -> str:
        return name

    def lines(self, asked: Request, _: Stop, __: float, opened: Callable[[], None]) -> Iterator[str]:
        self.asked.append(dict(asked.query))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        for each in answer:
            if isinstance(each, Exception):
                raise each
            if each == "opened":
                opened()
            else:
                yield each


def read(cluster: Any, ended: Callable[[], bool] | None = None) -> list[str]:
    """Ended by default when all answers but the last were given."""
    over = ended or (lambda: len(cluster.answers) == 1)
    return list(watch.logs(cluster, "talks", over, Stop()))


def test_lines_of_the_same_moment_are_all_told() -> None:
    same = [f"{AT}5Z one", f"{AT}5Z two", f"{AT}5Z two"]
    assert read(Scripted(same)) == ["one", "two", "two"]


def test_a_line_that_is_older_than_the_one_before_is_told() -> None:
    assert read(Scripted([f"{AT}5Z later", f"{AT}4Z earlier"])) == ["later", "earlier"]


def test_after_a_reconnect_only_what_was_seen_is_left_out() -> None:
    first = [f"{AT}4Z one", f"{AT}5Z two", BROKEN]
    again = [f"{AT}4Z one", f"{AT}5Z two", f"{AT}5Z two", f"{AT}5Z three"]
    cluster = Scripted(first, again)
    assert read(cluster) == ["one", "two", "two", "three"]
    assert cluster.asked[1]["sinceTime"] == "2026-01-01T00:00:00Z"


@pytest.mark.parametrize("inside", ["", f"{AT}52Z "])  # some kubelets put the time of the second half there
@pytest.mark.parametrize("half", ["xx", ""])
def test_the_half_of_a_line_that_a_rotation_left_in_the_new_file_is_not_told_again(inside: str, half: str) -> None:
    first = [f"{AT}50Z one", f"{AT}51Z two {inside}{half}", f"{AT}53Z three", BROKEN]
    again = [f"{AT}52Z {half}", f"{AT}53Z three", f"{AT}54Z {half}", f"{AT}55Z four"]
    told = read(Scripted(first, again))
    assert told == ["one", f"two {inside}{half}", "three", half, "four"]


def test_an_older_line_of_which_nothing_was_told_yet_is() -> None:
    first = [f"{AT}50Z one", f"{AT}53Z three", BROKEN]
    again = [f"{AT}51Z two", f"{AT}52Z one", f"{AT}53Z three"]
    assert read(Scripted(first, again)) == ["one", "three", "two", "one"]


def test_lines_of_an_earlier_second_are_not_kept_in_mind() -> None:
    log = watch.Log(Scripted([f"2026-01-01T00:00:0{number}.1Z x" for number in range(9)]), "talks")  # type: ignore[arg-type]
    assert len(list(log.lines(lambda: True, Stop()))) == 9
    assert len(log.last_second) == 1


def test_a_log_that_is_silent_for_long_is_not_a_cluster_that_is_away() -> None:
    silent: list[Any] = ["opened", BROKEN]
    begun = time.monotonic()
    cluster = Scripted(silent, silent, silent, [f"{AT}1Z after all"])
    assert read(cluster) == ["after all"]
    assert time.monotonic() - begun > 2 * cluster.patience_s


def test_a_cluster_that_stays_away_is_told() -> None:
    with pytest.raises(Unreachable, match="the connection was lost"):
        read(Scripted([BROKEN]), ended=lambda: False)


def test_a_kubelet_that_does_not_answer_is_asked_again() -> None:
    refused = GpuctlError("read the log", "Get https://10.0.0.7:10250: dial tcp: connection refused")
    assert read(Scripted([refused], [f"{AT}1Z after all"])) == ["after all"]
    with pytest.raises(Unreachable, match="connection refused"):
        read(Scripted([refused]), ended=lambda: False)


def test_the_rest_of_a_log_is_what_was_not_read_yet() -> None:
    answers = Scripted([f"{AT}1Z one", f"{AT}1Z two"], [f"{AT}1Z one", f"{AT}1Z two", f"{AT}2Z end", BROKEN])
    log = watch.Log(answers, "talks")  # type: ignore[arg-type]
    assert list(log.rest(Stop())) == ["one", "two"]
    assert list(log.rest(Stop())) == ["end"]


def test_an_interrupted_stop_goes_on_and_can_still_be_set() -> None:
    class Held:
        shut = 0

        def shutdown(self) -> None:
            self.shut += 1

        def close(self) -> None: ...

    stop, held = Stop(), Held()
    with stop.holding(held):  # type: ignore[arg-type]
        threading.Thread(target=stop.again).start()
        end = time.monotonic() + 5
        while not held.shut and time.monotonic() < end:
            time.sleep(0.01)
    assert held.shut == 1
    assert not stop.is_set()
