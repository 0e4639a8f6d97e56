"""Split a tmux configuration file into commands with their lines, by tmux's own rules."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

CONDITIONS = ("%if", "%elif", "%else", "%endif")


@dataclass(frozen=True)
class Unit:
    """One command as written, possibly over several lines; `tokens` keep their quotes."""

    line: int
    text: str
    tokens: tuple[str, ...]

    @property
    def condition(self) -> str:
        """Return %if, %elif, %else or %endif; "" for a command."""
        inline = self.tokens[0] == "%if" and "%endif" in self.tokens
        return self.tokens[0] if self.tokens[0] in CONDITIONS and not inline else ""


@dataclass(frozen=True)
class Mistake:
    """An error in a file, at a line (0 if it belongs to none)."""

    file: str
    line: int
    what: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.what}" if self.line else f"{self.file}: {self.what}"


def split(text: str) -> tuple[list[Unit], list[tuple[int, str]]]:
    """Return a file's commands, and quotes or braces never closed: tmux stops there silently."""
    reader = _Reader(text)
    return list(reader.units()), reader.unclosed


@dataclass
class _Reader:
    text: str
    at: int = 0
    unclosed: list[tuple[int, str]] = field(default_factory=list)

    @property
    def line(self) -> int:
        return self.text.count("\n", 0, self.at) + 1

    @property
    def current(self) -> str:
        return self.text[self.at : self.at + 1]

    def units(self) -> Iterator[Unit]:
        while self.at < len(self.text):
            if self.current == "#":
                self._comment()
            elif self.current in " \t\r\n;":
                self.at += 1
            elif self.text.startswith("\\\n", self.at):
                self.at += 2
            else:
                yield self._unit()

    def _comment(self) -> None:
        """Skip to the end of the line; a backslash before it continues the comment."""
        while self.at < len(self.text) and self.current != "\n":
            self.at += 2 if self.current == "\\" else 1

    def _unit(self) -> Unit:
        start, line = self.at, self.line
        conditional = self.text.startswith(("%if", "%elif"), self.at)
        tokens: list[str] = []
        depth, opened = 0, 0
        while self.at < len(self.text):
            if self._blank() or (self.current == "\n" and depth):
                self.at += 1
            elif self.current == "\n" or (self.current == ";" and not depth and not conditional):
                break
            elif self.current == "#" and not (conditional and self.text.startswith("#{", self.at)):
                self._comment()
            elif self.current in "{};" and not conditional:
                opened = self.line if self.current == "{" and not depth else opened
                depth = max(0, depth + {"{": 1, "}": -1, ";": 0}[self.current])
                tokens.append(self.current)
                self.at += 1
            else:
                tokens.append(self._word(conditional))
        if depth:
            self.unclosed.append((opened, "unclosed {"))
        return Unit(line, self.text[start : self.at], tuple(tokens))

    def _blank(self) -> bool:
        """True at a space or a continued line, whose backslash is skipped."""
        if self.text.startswith("\\\n", self.at):
            self.at += 1
            return True
        return self.current in " \t\r"

    def _word(self, conditional: bool) -> str:
        start, quote, opened = self.at, "", 0
        while self.at < len(self.text):
            if self.current == "\\" and (quote != "'" or self.text.startswith("\\\n", self.at)):
                self.at += 2
                continue
            if quote and self.current == "\n":
                self._after_newline()
                continue
            if conditional and not quote and self.text.startswith("#{", self.at):
                self._format()
                continue
            if not quote and self._ends(conditional):
                break
            if self.current in "'\"" and quote in ("", self.current):
                quote, opened = "" if quote else self.current, self.line
            self.at += 1
        if quote:
            self.unclosed.append((opened, f"unclosed {quote}"))
        return self.text[start : self.at]

    def _ends(self, conditional: bool) -> bool:
        return self.current in " \t\r\n" or (self.current in ";}" and not conditional)

    def _format(self) -> None:
        """Skip an unquoted #{...} in a condition."""
        depth = 0
        while self.at < len(self.text) and self.current != "\n":
            depth += {"{": 1, "}": -1}.get(self.current, 0)
            self.at += 1
            if depth == 0 and self.text[self.at - 1] == "}":
                return

    def _after_newline(self) -> None:
        """Inside quotes, skip a line that starts with #, unless a format starts there."""
        self.at += 1
        while self.at < len(self.text) and self.current in " \t":
            self.at += 1
        if self.current == "#" and self.text[self.at + 1 : self.at + 2] not in tuple(",#{}:"):
            self._comment()
