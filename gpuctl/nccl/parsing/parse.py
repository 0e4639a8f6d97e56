"""Parse streamed output of nccl-tests and rccl-tests of any size; parsing/outcome.py defines the evidence."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from gpuctl.nccl.model import Outcome, Run
from gpuctl.nccl.parsing import header, log_prefixes, report
from gpuctl.nccl.parsing.lines import clean, parse_messages, untag
from gpuctl.nccl.parsing.network import HEADS
from gpuctl.nccl.parsing.outcome import Stopped
from gpuctl.nccl.parsing.session import Session

_INFO = " NCCL INFO "
_SKIP = len(_INFO)
_ANY = " NCCL "
_LONGEST = 1 << 16  # of a line of text; more is no line of nccl-tests, and JSON is read elsewhere
# What only the rank prints that prints the table.
_OF_TABLE = re.compile(
    r"\s*(?:# *(?:nccl-tests version|nThread|Collective test|Using devices|Rank +\d|size +count|Out of bounds|Avg bus)"
    r"|\d+ +\d+ +[a-z])"
)
_MOST_ORIGINS = 1024  # with a table
_MOST_JSON = 256 << 20  # characters of one JSON document, however many lines it has


def runs(lines: Iterable[str], stopped: Stopped | None = None) -> Iterator[Run]:
    """Yield every run in a text as soon as the next begins; at least one, EMPTY if no test began.

    `lines` come with or without line ends. `stopped` is what is known of the end of the program; it applies to the
    last run. Never raises for anything in the text, and keeps no more of it than the table.
    """
    origins = _Origins(stopped)
    for origin, line in log_prefixes.strip(lines):
        reader = origins.first if origin == origins.owner else origins.reader(origin, line)
        at = line.find(_INFO)
        # Another message behind the first: a line end was lost.
        glued = at > 0 and line.find(_ANY, at + _SKIP) > 0
        # Nearly all of a large log are debug lines of no interest: they are passed over here, as cheaply as can be.
        if (
            at > 0
            and not glued
            and reader.calm
            and line[at + _SKIP : at + _SKIP + 4] not in HEADS
            and line[0].isalpha()
        ):
            continue
        if at < 0 or glued or not reader.done_with(line, at + _SKIP):
            yield from reader.read(line)
    for reader in origins.readers:
        yield from reader.end()


class _Origins:
    """Readers by origin: tables that several pods or hosts print at a time are as many runs.

    One table is read together with what all others print: NCCL's messages come from every rank.
    """

    def __init__(self, stopped: Stopped | None) -> None:
        self._stopped = stopped
        self.first = _Reader(stopped)
        self.owner: str | object | None = self  # origin of the first table: none yet
        self._others: dict[str | None, _Reader] = {}
        self._unknown = _Reader(None)  # of lines that may belong to any of several runs; nobody reads its end

    @property
    def readers(self) -> list[_Reader]:
        return [self.first, *self._others.values()]

    def reader(self, origin: str | None, line: str) -> _Reader:
        """Reader of a line from another origin than the first table's."""
        if own := self._others.get(origin):
            return own
        if _OF_TABLE.match(line):
            if self.owner is self:
                self.owner, self.first.origin = origin, origin
                return self.first
            if len(self._others) < _MOST_ORIGINS:
                self._others[origin] = _Reader(self._stopped, origin)
                return self._others[origin]
        if not self._others:
            return self.first
        named = (reader for reader in self.readers if any(f"{host}:" in line for host in reader.hosts))
        return next(named, self._unknown)


class _Reader:
    def __init__(self, stopped: Stopped | None, origin: str | None = None) -> None:
        self.stopped = stopped
        self.origin = origin
        self.session = Session()
        self.hosts: set[str] = set()
        self.yielded = False
        self.calm = True  # no row is broken off, no document is open
        self.ends = False  # lines come with their ends, so that one without is cut
        self.cut = ""
        self.document: list[str] | None = None
        self.characters = 0
        self.foreign: Run | None = None

    def done_with(self, line: str, at: int) -> bool:
        """Consume a line that is NCCL's from its first character, with its message at `at`; False if it is not."""
        network = self.session.network
        if self.document is not None or self.cut:
            return False
        # While a row is broken off, a line may begin with the rest of it: then only what is known begins otherwise.
        return ((self.calm and line[0].isalpha()) or network.knows(line[:at])) and network.fast(line, at)

    def read(self, line: str) -> Iterator[Run]:
        """Consume any line."""
        yield from self._line(line)
        self.calm = not self.session.table.pieces and self.document is None and not self.cut

    def _line(self, line: str) -> Iterator[Run]:
        if line[-1:] == "\n":
            self.ends = True
        elif self.ends:
            self.cut = line  # only the last line can be without an end
            return
        yield from self._take(line)

    def _take(self, line: str) -> Iterator[Run]:
        if self.document is not None or line.lstrip()[:1] == "{":
            yield from self._json(line)
            return
        text = clean(line[:_LONGEST])
        text, rank = untag(text)
        messages = parse_messages(text, self.hosts, rank)
        for number, message in enumerate(messages):
            at = line.find(_INFO) if number == 0 else -1
            # A line that says no more than that may be known again by its beginning.
            self.session.message(message, line[: at + len(_INFO)] if at > 0 and not message.before[0] else "")
        if messages:
            return
        yield from self._plain(text, rank)

    def _plain(self, text: str, rank: int | None) -> Iterator[Run]:
        session = self.session
        if session.begins_another(text):
            yield from self._finish()
        self.session.line(text, rank)
        listed = header.rank(text) if "Pid" in text else None
        if listed and listed.host:
            self.hosts.add(listed.host)

    def _finish(self, stopped: Stopped | None = None, whole: bool = True) -> Iterator[Run]:
        session, self.session = self.session, Session(self.session.next_program)
        if not session.blank:
            self.yielded = True
            yield self._named(session.run(stopped, whole))

    # -- JSON ----------------------------------------------------------------------------------------------------------

    def _json(self, line: str) -> Iterator[Run]:
        """Read a document in one line (-J, the inspector), or in many (RAS, or reformatted)."""
        if self.document is not None and line[:1] == "#":  # no line of JSON begins so: the document was none
            text, self.document = [*self.document, line], None
            for one in text:
                yield from self._plain(clean(one[:_LONGEST]), None)
            return
        if self.document is None:
            stripped = line.strip()
            if stripped != "{" and not stripped.startswith('{"'):
                yield from self._plain(clean(line[:_LONGEST]), None)
                return
            if stripped != "{" and stripped.endswith("}"):
                yield from self._document(line)
                return
            self.document, self.characters = [], 0
        self.document.append(line if line.endswith("\n") else line + "\n")
        self.characters += len(line)
        if line[:1] == "}" or self.characters > _MOST_JSON:
            yield from self._document_ends()

    def _document_ends(self) -> Iterator[Run]:
        text, self.document = "".join(self.document or ()), None
        yield from self._document(text)

    def _document(self, text: str, stopped: Stopped | None = None) -> Iterator[Run]:
        runs = report.read(text, stopped)
        if runs is None:
            return
        if runs.outcome is Outcome.EMPTY and not runs.rows and runs.collective is None:
            self.foreign = self.foreign or runs  # once, however many lines of it there are
            return
        yield from self._finish()
        self.yielded = True
        yield self._named(runs)

    def _named(self, run: Run) -> Run:
        return replace(run, origin=self.origin) if self.origin else run

    # -- the end -------------------------------------------------------------------------------------------------------

    def end(self) -> Iterator[Run]:
        """Yield the last run, or an empty one that says why there is none."""
        whole = not self.cut
        if self.cut:
            yield from self._last_line()
        if self.document is not None:
            text, self.document = "".join(self.document), None
            yield from self._document(text, self.stopped)
        last = self.session
        yield from self._finish(self.stopped, whole)
        if not self.yielded:
            yield self.foreign or last.run(self.stopped, whole)

    def _last_line(self) -> Iterator[Run]:
        """Last line without a line end, after lines that had one: its number may be cut, so it is not a row."""
        line, self.cut = self.cut, ""
        if self.document is not None or line.lstrip()[:1] == "{":
            yield from self._json(line)
            return
        text, _ = untag(clean(line[:_LONGEST]))
        average = header.AVERAGE.match(text)
        exact = average is None or sum(c.isdigit() for c in average[1]) >= header.EXACT_DIGITS or bool(average[2])
        if not text.lstrip()[:1].isdigit() and exact and not self.session.table.pieces:
            yield from self._take(line)


__all__ = ["Stopped", "runs"]
