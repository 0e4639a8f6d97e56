"""Cause of a failed run: the first real reason among everything printed afterwards."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from gpuctl.nccl.model import Outcome
from gpuctl.nccl.parsing.failure_patterns import ERRORS, HINTS, LINES, WARNINGS, Known, Weight
from gpuctl.nccl.parsing.lines import Speaker

Whose = Callable[[Speaker], tuple[int | None, str | None]]  # a speaker -> its rank and host, as far as known
_SIGNAL = re.compile(r"signal (\d+)(?: \(([^)]*)\))?")
_SEVERE = re.compile(r"NCCL (WARN|ERROR) (.*)")
_MOST = 64  # of each weight: what comes later is never the first


@dataclass(frozen=True)
class Trouble:
    """One line that reports a failure."""

    speaker: Speaker
    message: str
    weight: Weight
    outcome: Outcome
    fatal: bool
    of_test: bool = False  # "Test NCCL failure": names the error, while a warning before it names the call


class Troubles:
    """Collects failures in the order they were printed."""

    def __init__(self) -> None:
        self._found: list[Trouble] = []
        self._unfinished = ""  # a sentence of a launcher that goes on in the next line

    def line(self, line: str, rank: int | None) -> None:
        """Examine a line that was not written by a rank's NCCL."""
        if self._unfinished and (signal := _SIGNAL.search(line)):
            self._finish(signal)
        self._unfinished = ""
        if not HINTS.search(line):
            return
        severe = _SEVERE.search(line)
        if severe and line.startswith(("NCCL ", "RCCL ")):
            self.message(Speaker(rank=rank), line)
            return
        self._take(LINES, line, Speaker(rank=rank), fatal=True)

    def message(self, speaker: Speaker, text: str) -> None:
        """Examine a message of NCCL, which may be irrelevant."""
        severe = _SEVERE.search(text)
        if severe:
            hard = severe[1] == "ERROR"
            self._take(ERRORS if hard else WARNINGS, severe[2].strip(), speaker, fatal=False)

    def _take(self, known: Sequence[Known], text: str, speaker: Speaker, fatal: bool) -> None:
        for one in known:
            match = one.pattern.search(text)
            if match is None:
                continue
            groups = {name: value or "" for name, value in match.groupdict().items()}
            if "{signal}" in one.message:
                groups["signal"] = self._signal(text)
            message = one.message.format(**groups).strip(" :,")
            who = replace(
                speaker,
                host=groups.get("host") or speaker.host,
                rank=int(groups["rank"]) if groups.get("rank") else speaker.rank,
            )
            outcome = Outcome.FAILED if "signal" in groups and _crash(groups["signal"]) else one.outcome
            self._add(Trouble(who, message, one.weight, outcome, fatal, "Test NCCL failure" in text))
            return

    def _signal(self, text: str) -> str:
        match = _SIGNAL.search(text)
        self._unfinished = "" if match else text
        return _named(match) if match else "{signal}"

    def _finish(self, signal: re.Match[str]) -> None:
        if self._found and "{signal}" in self._found[-1].message:
            last, name = self._found[-1], _named(signal)
            outcome = Outcome.FAILED if _crash(name) else last.outcome
            self._found[-1] = replace(last, message=last.message.replace("{signal}", name), outcome=outcome)

    def _add(self, trouble: Trouble) -> None:
        if sum(one.weight is trouble.weight for one in self._found) < _MOST:
            self._found.append(trouble)

    @property
    def fatal(self) -> bool:
        """True if a run with these failures cannot have ended well."""
        return any(one.fatal for one in self._found)

    def first(self) -> Trouble | None:
        """First failure of the greatest weight; None if nothing indicates that the run failed."""
        troubles = [one for one in self._found if one.weight >= Weight.SYMPTOM] if not self.fatal else self._found
        most = max((one.weight for one in troubles), default=None)
        best = [one for one in troubles if one.weight is most]
        named = [one for one in best if one.speaker.rank is not None or one.speaker.host]
        # Of banners and exit codes, which say little, one that names somebody says more.
        return next(iter(named if most is Weight.AFTER and named else best), None)

    def cause(self, whose: Whose) -> str | None:
        """First reason as text, with rank and host where known."""
        first = self.first()
        if first is None:
            return None
        rank, host = whose(first.speaker)
        place = _place(rank, host)
        more = self._beside(first, rank is None, whose)
        message = first.message.replace("{signal}", "a signal")
        if first.of_test or not more or more[1]:
            message = ", ".join([message, *([more[0]] if more else [])])
        else:
            message = f"{more[0]}, {message}"
        return f"{place}: {message}" if place else message

    def warning(self, whose: Whose) -> str | None:
        """First warning of NCCL, as text; None if there is none, or if a failure explains the run."""
        warnings = [one for weight in (Weight.WARNING, Weight.AFTER) for one in self._found if one.weight is weight]
        if not warnings or self.first() is not None:
            return None
        return f"{_place(*whose(warnings[0].speaker)) or 'NCCL'} warned: {warnings[0].message}"

    def _beside(self, first: Trouble, nameless: bool, whose: Whose) -> tuple[str, bool] | None:
        """Detail from a related line: NCCL's warning and the test's error belong together. (text, comes last)."""
        host = whose(first.speaker)[1]
        same_host = [one for one in self._found if one is not first and host and whose(one.speaker)[1] == host]
        if first.of_test:
            at = self._found.index(first)
            warned = [one for one in self._found[:at] if one in same_host and not one.of_test and not one.fatal]
            return (warned[-1].message, True) if warned else None
        errors = [one for one in same_host if one.of_test]
        if errors and not first.fatal:
            return errors[0].message, False
        earlier = self._found[: self._found.index(first)]
        warned = [one for one in earlier if one.weight is Weight.WARNING and one.speaker.rank is not None]
        if nameless and warned:
            return f"after rank {warned[0].speaker.rank} warned: {warned[0].message}", True
        return None


def _place(rank: int | None, host: str | None) -> str:
    return " on ".join(([f"rank {rank}"] if rank is not None else []) + ([host] if host else []))


def _named(signal: re.Match[str]) -> str:
    return f"signal {signal[1]}" + (f" ({signal[2]})" if signal[2] else "")


def _crash(signal: str) -> bool:
    """Return True for signals that are the program's own fault, not a kill from outside."""
    return signal.split()[1:2] in (["4"], ["6"], ["7"], ["8"], ["11"])
