"""The abandonable pool: results in order, and no wait for other calls after an error."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future

import pytest

from gpuctl.core.abandonable_pool import AbandonablePool

LEFT = """
import threading
from gpuctl.core.abandonable_pool import AbandonablePool
with AbandonablePool(2) as pool:
    pool.submit(threading.Event().wait)
    raise SystemExit(7)
"""


@pytest.fixture
def never() -> Iterator[threading.Event]:
    """What a question waits for that is not answered."""
    found = threading.Event()
    yield found
    found.set()


def test_results_come_in_the_order_of_the_calls() -> None:
    def answer(number: int) -> int:
        time.sleep(0.02 * (4 - number))  # the last one answers first
        return number

    with AbandonablePool(4) as pool:
        assert list(pool.map(answer, range(4))) == [0, 1, 2, 3]


def test_no_more_calls_run_at_once_than_there_are_threads() -> None:
    asked, lock, most = 0, threading.Lock(), 0

    def ask() -> None:
        nonlocal asked, most
        with lock:
            asked += 1
            most = max(most, asked)
        time.sleep(0.02)
        with lock:
            asked -= 1

    with AbandonablePool(3) as pool:
        for _ in range(9):
            pool.submit(ask)
    assert (asked, most) == (0, 3)


def test_an_error_is_raised_by_the_future() -> None:
    with AbandonablePool(1) as pool:
        job = pool.submit(int, "x")
        with pytest.raises(ValueError, match="invalid literal"):
            job.result()
        assert pool.submit(int, "7").result() == 7


def test_after_an_error_running_work_is_abandoned_and_queued_work_dropped(never: threading.Event) -> None:
    jobs: list[Future[bool]] = []

    def broken_off() -> None:
        with AbandonablePool(1) as pool:
            jobs.extend(pool.submit(never.wait) for _ in range(2))
            while not jobs[0].running():
                time.sleep(0.01)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        broken_off()
    assert [(each.running(), each.cancelled()) for each in jobs] == [(True, False), (False, True)]


def test_a_call_that_never_returns_does_not_keep_the_process() -> None:
    done = subprocess.run([sys.executable, "-c", LEFT], timeout=20, check=False)
    assert done.returncode == 7
