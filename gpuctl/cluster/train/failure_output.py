"""Read a failed pod's output: its exception, and whether that is only the consequence of another pod's failure."""

from __future__ import annotations

import re
from collections.abc import Sequence

# torchrun reports its first failed process in a line with this text, and then prints its own traceback and a table.
# Source: torch/distributed/elastic/multiprocessing/api.py, the same text in 1.13 to 2.9.
EPILOGUE = re.compile(r"failed \(exitcode: -?\d+\) local_rank: \d+ \(pid: \d+\) of (?:binary|fn)")
RANK = (
    r"(?:\[rank\d+\]:\s?|\[default\d+\]:\s?)?"  # before each line with torchrun's --tee, and in tracebacks from 2.2 on
)
EXCEPTION = re.compile(rf"^{RANK}(?P<text>(?:\w+\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit|Failure)\b(?::.*)?)$")
# A rank that says this has lost another one. Sources: gloo/transport/tcp/pair.cc; PyTorch's TCPStore, ProcessGroupNCCL
# and NCCLUtils; NCCL's ncclGetErrorString.
LOST_PEER = re.compile(
    r"Connection (?:closed|reset) by (?:remote )?peer|Broken pipe|failed to recv, got 0 bytes|DistNetworkError"
    r"|recvValue failed|remote process exited or there was a network error|ncclRemoteError"
    r"|NCCL communicator was aborted|Watchdog caught collective operation timeout|Timed out waiting \d+ms for recv",
    re.IGNORECASE,
)
MOST_OF_A_MESSAGE = 300  # characters


def before_epilogue(lines: Sequence[str]) -> list[str]:
    """Return the lines of the training itself, without torchrun's report of its end; all lines if nothing is before."""
    end = next((number for number, line in enumerate(lines) if EPILOGUE.search(line)), 0)
    return list(lines[:end] or lines)


def exception(lines: Sequence[str]) -> str:
    """Return the exception that explains the failure: the first that is no lost peer, else the first; "" if none."""
    found = [match["text"] for line in before_epilogue(lines) if (match := EXCEPTION.match(line.rstrip()))]
    causes = [text for text in found if not LOST_PEER.search(text)]
    return next(iter(causes or found), "")[:MOST_OF_A_MESSAGE]


def has_lost_a_peer(lines: Sequence[str]) -> bool:
    """Return whether all that the pod reports is the loss of another rank."""
    text = exception(lines)
    if text:
        return bool(LOST_PEER.search(text))
    return any(LOST_PEER.search(line) for line in before_epilogue(lines))
