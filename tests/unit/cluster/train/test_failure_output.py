"""A failed pod's exception is found in front of torchrun's report, and the loss of another pod is told apart."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuctl.cluster.train import failure_output

DATA = Path("tests/data/torchrun")
NEWER = [
    "[rank1]: Traceback (most recent call last):",
    '[rank1]:   File "/workspace/train.py", line 5, in <module>',
    "[rank1]: torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB",
    "E1120 09:15:12 4711 api.py:882] failed (exitcode: 1) local_rank: 0 (pid: 4733) of binary: /usr/bin/python3",
    "Traceback (most recent call last):",
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
]


def recorded(name: str) -> list[str]:
    return (DATA / name).read_text().splitlines()


def test_torchruns_own_report_is_left_out() -> None:
    lines = failure_output.before_epilogue(recorded("1.13-exception.txt"))
    assert lines[0] == "rank 1 tensor([2.])"
    assert lines[-1] == "RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB"
    only_report = recorded("1.13-exception.txt")[len(lines) :]
    assert failure_output.before_epilogue(only_report) == only_report  # nothing else is kept: show that
    assert failure_output.before_epilogue(NEWER) == NEWER[:3]


def test_the_exception_is_the_trainings_own_and_a_lost_peer_no_cause() -> None:
    cause, lost = recorded("1.13-exception.txt"), recorded("1.13-lost-peer.txt")
    assert failure_output.exception(cause) == "RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB"
    assert not failure_output.has_lost_a_peer(cause)
    assert "Connection closed by peer" in failure_output.exception(lost)
    assert failure_output.has_lost_a_peer(lost)
    assert failure_output.exception(NEWER).startswith("torch.cuda.OutOfMemoryError: CUDA out of memory")


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        (["[rank0]: RuntimeError: Connection reset by peer", "[rank1]: ValueError: bad"], "ValueError: bad"),
        (["KeyError: 'a'", "During handling of the above exception", "ValueError: b"], "KeyError: 'a'"),
        (["AssertionError"], "AssertionError"),
        (["loss Error: 0.5 is printed", "Errors: none"], ""),
        ([], ""),
    ],
)
def test_of_several_exceptions_the_first_cause_counts(lines: list[str], text: str) -> None:
    assert failure_output.exception(lines) == text


def test_a_rank_that_only_prints_ncclremoteerror_has_lost_a_peer_and_one_that_prints_nothing_has_not() -> None:
    assert failure_output.has_lost_a_peer(["ncclRemoteError: A call failed possibly due to a network error"])
    assert not failure_output.has_lost_a_peer(["Segmentation fault"])
    assert not failure_output.has_lost_a_peer([])
