"""Read a failed pod's output: its exception, and whether that is only the consequence of another pod's failure."""

from __future__ import annotations

from collections.abc import Sequence

from gpuctl.domain import job_log


def before_epilogue(lines: Sequence[str]) -> list[str]:
    """Return the lines of the training itself, without torchrun's report of its end; all lines if nothing is before."""
    end = next((number for number, line in enumerate(lines) if job_log.EPILOGUE.search(line)), 0)
    return list(lines[:end] or lines)


def exception(lines: Sequence[str]) -> str:
    """Return the exception that explains the failure: the first that is no lost peer, else the first; "" if none."""
    texts = [job_log.unlabelled(0, line.rstrip()).text for line in before_epilogue(lines)]
    found = [match["text"] for text in texts if (match := job_log.EXCEPTION.match(text))]
    causes = [text for text in found if not job_log.LOST_PEER.search(text)]
    return next(iter(causes or found), "")[: job_log.MOST_TEXT]


def has_lost_a_peer(lines: Sequence[str]) -> bool:
    """Return whether all that the pod reports is the loss of another rank."""
    text = exception(lines)
    if text:
        return bool(job_log.LOST_PEER.search(text))
    return any(job_log.LOST_PEER.search(line) for line in before_epilogue(lines))
