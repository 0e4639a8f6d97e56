"""Exit codes of `gpuctl` (README.md), and the one that follows from several."""

from __future__ import annotations

from collections.abc import Iterable

OK = 0
PROBLEMS = 1  # problems were found
INVALID_INPUT = 2  # an argument or file cannot be used; nothing was changed
NOT_DONE = 3  # a host or cluster was not reached, or could not do it
INTERNAL_ERROR = 4  # a fault of gpuctl
INTERRUPTED = 130  # Ctrl-C: 128 + SIGINT, as shells report it
READER_GONE = 141  # 128 + SIGPIPE, as other programs; not 1, which means that problems were found
_WORST_FIRST = (INTERNAL_ERROR, INVALID_INPUT, NOT_DONE, PROBLEMS, OK)


def worst(codes: Iterable[int]) -> int:
    """Return the code of a run over many: the worst decides; 0 for none."""
    return min(codes, key=_WORST_FIRST.index, default=OK)


# Code -> meaning, what to do.
MEANINGS = {
    OK: ("Everything is well.", ""),
    PROBLEMS: ("Problems were found: a finding is FAIL or UNKNOWN, or a host differs.", "read the findings"),
    INVALID_INPUT: ("An argument or file cannot be used; nothing was changed.", "correct what the message names"),
    NOT_DONE: (
        "A host or cluster was not reached, or could not do it.",
        "check that the named hosts can be reached, then run the command again",
    ),
    INTERNAL_ERROR: ("gpuctl itself failed; the message names a log file.", "report it with the log file"),
    INTERRUPTED: ("Ctrl-C or SIGTERM ended the command.", ""),
    READER_GONE: ("The reader of the output ended first, as with `| head`.", ""),
}
