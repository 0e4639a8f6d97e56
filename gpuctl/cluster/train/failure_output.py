"""Read a failed pod's output: its exception, and whether that is only the consequence of another pod's failure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from gpuctl.domain import job_log

# torchrun reports its first failed process in a line with this text, and then prints its own traceback and a table.
# Source: torch/distributed/elastic/multiprocessing/api.py, the same text in 1.13 to 2.9.
EPILOGUE = re.compile(r"failed \(exitcode: -?\d+\) local_rank: \d+ \(pid: \d+\) of (?:binary|fn)")
MOST_OF_A_MESSAGE = 300  # characters


def before_epilogue(lines: Sequence[str]) -> list[str]:
    """Return the lines of the training itself, without torchrun's report of its end; all lines if nothing is before."""
    end = next((number for number, line in enumerate(lines) if EPILOGUE.search(line)), 0)
    return list(lines[:end] or lines)


def exception(lines: Sequence[str]) -> str:
    """Return the exception that explains the failure: the first that is no lost peer, else the first; "" if none."""
    texts = [job_log.unlabelled(0, line.rstrip()).text for line in before_epilogue(lines)]
    found = [match["text"] for text in texts if (match := job_log.EXCEPTION.match(text))]
    causes = [text for text in found if not job_log.LOST_PEER.search(text)]
    return next(iter(causes or found), "")[:MOST_OF_A_MESSAGE]


def has_lost_a_peer(lines: Sequence[str]) -> bool:
    """Return whether all that the pod reports is the loss of another rank."""
    text = exception(lines)
    if text:
        return bool(job_log.LOST_PEER.search(text))
    return any(job_log.LOST_PEER.search(line) for line in before_epilogue(lines))
