"""How often Slurm is asked, however many ask."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

import pytest

from gpuctl.core.errors import GpuctlError
from gpuctl.nccl.runners.slurm.shared_queries import Shared, growing


class Asked:
    """A question that takes a moment; its answer is how often it was asked."""

    def __init__(self, wrong: str = "") -> None:
        self.times, self.wrong = 0, wrong

    def __call__(self) -> int:
        self.times += 1
        time.sleep(0.2)
        if self.wrong:
            raise GpuctlError("ask Slurm", self.wrong)
        return self.times


def test_all_who_ask_at_the_same_time_share_an_answer() -> None:
    asked = Asked()
    shared = Shared(asked, 0.1)
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda _: shared(), range(16)))
    assert asked.times <= 2  # most called while the first question was on its way: it may not tell of them
    assert set(answers) <= {1, 2}


def test_an_answer_is_never_older_than_the_call() -> None:
    shared = Shared(Asked(), 0.0)
    assert [shared(), shared()] == [1, 2]


def test_it_is_asked_no_more_often_than_said() -> None:
    shared, begun = Shared(lambda: None, 0.2), time.monotonic()
    for _ in range(3):
        shared()
    assert time.monotonic() - begun >= 0.4


def test_where_slurm_does_not_answer_all_are_told_and_none_asks_again() -> None:
    asked = Asked("no answer")
    shared = Shared(asked, 0.1)
    with ThreadPoolExecutor(16) as pool:
        answers = [pool.submit(shared) for _ in range(16)]
    assert [str(one.exception()) for one in answers] == ["cannot ask Slurm: no answer"] * 16
    assert asked.times <= 2


def test_the_next_who_asks_after_an_error_gets_an_answer() -> None:
    asked = Asked("no answer")
    shared = Shared(asked, 0.0)
    with pytest.raises(GpuctlError):
        shared()
    asked.wrong = ""
    assert shared() == 2


def test_pauses_grow_up_to_the_longest() -> None:
    assert list(islice(growing(0.5, 5), 6)) == [0.5, 1, 2, 4, 5, 5]
