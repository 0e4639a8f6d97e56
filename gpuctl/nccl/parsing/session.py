"""State of one run while its lines are read, and its result at the end."""

from __future__ import annotations

from gpuctl.nccl.model import Outcome, Rank, Run, Versions
from gpuctl.nccl.parsing import header
from gpuctl.nccl.parsing import outcome as ending
from gpuctl.nccl.parsing.first_failure import Troubles
from gpuctl.nccl.parsing.lines import NcclMessage, Speaker
from gpuctl.nccl.parsing.network import Network
from gpuctl.nccl.parsing.rows import broken_off
from gpuctl.nccl.parsing.table import Table, begins

_VERSION, _STARTING, _SETTINGS, _DEVICES, _TABLE, _OUT, _AVERAGE, _CONCLUDED = range(8)
_MOST_RANKS = 100_000


class Session:
    """Lines of one run. Its parts come in a fixed order: an earlier part starts the next run."""

    def __init__(self, program: str | None = None) -> None:
        self.stage = -1
        self.program = program  # of a command line before the run: all_reduce_perf
        self.named: str | None = None
        self.next_program: str | None = None
        self.ranks: dict[int, Rank] = {}
        self.table = Table()
        self.network = Network()
        self.troubles = Troubles()
        self.sweep: tuple[int, int, bool] | None = None  # least size, step, whether it is a factor
        self.expected: int | None = None
        self.average: float | None = None
        self.out_of_bounds: int | None = None
        self.tests: str | None = None
        self.library: str | None = None
        self.foreign: str | None = None
        self.left_out = False

    # -- what a line is ------------------------------------------------------------------------------------------------

    def begins_another(self, line: str) -> bool:
        """Return True if this line belongs to the next run."""
        stage = _stage(line)
        return stage is not None and stage <= self.stage and not (stage == _TABLE and not self.table.begun)

    def message(self, message: NcclMessage, prefix: str = "") -> None:
        """Process an NCCL message; text in front of it is a piece of a row unless it is NCCL's own prefix."""
        if message.before[0]:
            self.table.piece(message.before)
        self.heard(message.speaker, message.text, prefix)

    def heard(self, speaker: Speaker, text: str, prefix: str = "") -> None:
        """Process an NCCL message alone."""
        _, info, text_of_info = text.partition("NCCL INFO ")
        if info:
            self.network.hear(speaker, text_of_info, prefix)
        elif "NCCL version" in text and "NCCL WARN" not in text:  # "Mismatched NCCL version detected"
            self.network.version(text)
        else:
            self.troubles.message(speaker, text)

    def line(self, line: str, rank: int | None) -> None:
        """Process any other line."""
        if self.table.pieces and self._goes_on(line):
            return
        if line.lstrip()[:1].isdigit() and self._row(line, rank):
            return
        if self._part(line):
            return
        if header.LEFT_OUT.match(line):
            self.left_out = self.left_out or self.stage < _OUT
        elif line.lstrip()[:1] != "#":  # comments of people tell of crashes, too
            self.troubles.line(broken_off(line)[1], rank)

    def _goes_on(self, line: str) -> bool:
        """Return True if this line completed the row that was broken off before it."""
        pieces = self.table.pieces
        whole = self.table.joined(line)
        if whole is not None:
            self.table.pieces = ()
            self._row(whole, None)
            return True
        if not line.strip():  # NCCL prints an empty line before a warning
            return True
        if pieces[0].lstrip()[:1] == "#":
            self.table.pieces = ()
            if line.lstrip()[:1] == "#":  # only the line end was missing: that of a rank, with a message behind it
                self._part(pieces[0])
                return False
            return self._part(pieces[0] + line)
        self.table.settle()
        return False

    def _row(self, line: str, rank: int | None) -> bool:
        if self.table.take(line):
            self.stage = max(self.stage, _TABLE)
            return True
        if self.table.begun and begins(line):
            piece, other = broken_off(line)
            self.table.piece((piece,))
            self.troubles.line(other, rank)
            return True
        return False

    def _part(self, line: str) -> bool:
        """Process a line of the parts around the table; False if it is not one."""
        stage = _stage(line)
        if stage is not None:
            self.stage = max(self.stage, stage)
            return self._around(line)
        return self._unordered(line)

    def _around(self, line: str) -> bool:
        if self.table.heading(line):
            return True
        if match := header.TESTS_VERSION.match(line):
            self.tests = match[1]
            self.library = header.version(int(match[2])) if match[2] else None
        elif match := header.STARTING.match(line) or header.CONCLUDED.match(line):
            self.named = header.collective(match[1])
        elif match := header.SETTINGS.match(line):
            least, most, step, kind = match.groups()
            self._announced(int(least), int(most), int(step), kind == "factor")
        elif match := header.OUT_OF_BOUNDS.match(line):
            # That there are some is what matters, however the number of them was garbled.
            self.out_of_bounds = int(match[1][:18])
        elif match := header.AVERAGE.match(line):
            self.average = float(match[1])
        return True

    def _announced(self, least: int, most: int, step: int, by_factor: bool) -> None:
        self.sweep = (least, step, by_factor)
        self.expected = header.sizes(least, most, step, by_factor)

    def _unordered(self, line: str) -> bool:
        rank = header.rank(line) if "Pid" in line else None
        if rank and self.stage < _TABLE and len(self.ranks) < _MOST_RANKS:
            self.ranks.setdefault(rank.rank, rank)
        elif self.sweep and (match := header.REDUCED.match(line)):
            least, step, by_factor = self.sweep
            # nccl-tests measures its smallest size, however short memory is.
            self._announced(least, max(least, int(match[1])), step, by_factor)
        elif match := header.RCCL_TESTS.match(line):
            self.tests = f"rccl-tests {match[1]}"
        elif "NCCL version" in line and "NCCL WARN" not in line:
            self.network.version(line)
        elif "time:avg(us)" in line:
            self.foreign = "nccom-test (Neuron)"
        else:
            if "_perf" in line and (match := header.PROGRAM.search(line)):
                self._command(match[1])
            return False
        return True

    def _command(self, program: str) -> None:
        """Process a command line: before the run it names the program, after the run it belongs to the next."""
        if self.stage < _TABLE:
            self.program = self.program or program
        elif self.stage >= _OUT:
            self.next_program = program

    # -- the end -------------------------------------------------------------------------------------------------------

    @property
    def blank(self) -> bool:
        """True if neither a run nor a reason for its absence was read."""
        return self.stage < 0 and not self.table.rows and self.troubles.first() is None and not self.foreign

    def run(self, stopped: ending.Stopped | None = None, whole: bool = True) -> Run:
        """Result of the run. `whole`: the last line was not cut."""
        self.table.settle()
        ranks = tuple(self.ranks[number] for number in sorted(self.ranks))
        rows = tuple(self.table.rows)
        evidence = ending.Evidence(
            rows,
            self.out_of_bounds,
            summed_up=self.out_of_bounds is not None or self.average is not None or self.stage >= _CONCLUDED,
            expected=self.expected,
            begun=self.table.begun,
            started=self.stage >= 0,
            whole=whole,
            foreign=self.foreign,
            not_numbers=tuple(self.table.not_numbers),
            warning=self.troubles.warning(lambda speaker: self.network.rank(speaker, ranks)),
        )
        cause = self.troubles.cause(lambda speaker: self.network.rank(speaker, ranks))
        first = self.troubles.first()
        outcome, why = ending.judged(evidence, first.outcome if first else None, self.troubles.fatal, cause, stopped)
        name = self.named or (self.program if outcome is not Outcome.EMPTY else None)
        heard = self.network
        versions = Versions(heard.nccl or self.library, self.tests, heard.cuda, heard.plugin)
        return Run(
            outcome=outcome,
            cause=why,
            collective=name,
            rows=rows,
            avg_busbw_gbs=self.average,
            out_of_bounds=self.out_of_bounds,
            ranks=ranks,
            transports=heard.transports(ranks),
            algorithms=tuple(heard.chosen),
            versions=versions,
            forced_algorithms=tuple(heard.forced),
            sizes_announced=self.expected,
            not_numbers=evidence.not_numbers,
            left_out=self.left_out,
            warning=evidence.warning,
        )


def _stage(line: str) -> int | None:
    """Position of this line in the fixed order; None for rows and everything else."""
    if ":" not in line and "size" not in line and "devices" not in line and "version" not in line:
        return None
    for stage, pattern in (
        (_VERSION, header.TESTS_VERSION),
        (_STARTING, header.STARTING),
        (_SETTINGS, header.SETTINGS),
        (_DEVICES, header.DEVICES),
        (_OUT, header.OUT_OF_BOUNDS),
        (_AVERAGE, header.AVERAGE),
        (_CONCLUDED, header.CONCLUDED),
    ):
        if pattern.match(line):
            return stage
    columns = line.replace("#", " ", 1).split(maxsplit=2)
    return _TABLE if columns[:2] == ["size", "count"] and "busbw" in line else None
