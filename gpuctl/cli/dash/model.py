"""Values between panels, which read, and the screen, which draws."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import click

from gpuctl.cli.shared.options import build
from gpuctl.core.errors import InvalidInput

Request = TypeVar("Request")
NEVER = float("inf")


@dataclass(frozen=True)
class Line:
    """A line of a panel. `subject`: opened by Enter, "" if nothing is; `level`: the verdict that colours it.

    `command`: a command in the text, which a key copies; such a line is never broken.
    """

    text: str
    subject: str = ""
    level: str = ""
    command: str = ""


@dataclass(frozen=True)
class View:
    """Content of a panel. `head`: titles of the columns; `summary`: lines that stay below those that scroll.

    `read_at`: local time of the newest values, "" until a reading has ended. `waiting`: subjects without an answer yet.
    """

    lines: Sequence[Line] = ()
    head: str = ""
    summary: Sequence[str] = ()
    read_at: str = ""
    waiting: int = 0


@dataclass(frozen=True)
class Detail:
    """A subject in full, and the command that prints it."""

    title: str
    lines: Sequence[Line]
    command: str


@dataclass(frozen=True)
class Program:
    """A program that has the terminal until it ends. `question`: asked there before it starts, "" for none.

    `pauses`: its output stays until Enter.
    """

    argv: Sequence[str]
    question: str = ""
    pauses: bool = True


@dataclass(frozen=True)
class PanelKey:
    """A key of one panel. `act`: called with the subject under the cursor; returns what opens, None for a redraw.

    `prompt`: title of a question for a text; then `act` gets the text instead. `reads`: the values are read again.
    """

    key: str
    does: str
    act: Callable[[str], Detail | Program | None]
    prompt: str = ""
    reads: bool = False


class Panel(Protocol):
    """A panel. `read` runs in a thread and may take long; `view` draws what was read, without I/O to hosts.

    `detail` does, too, or asks a cluster for one object: for seconds, in a thread.

    `keys`: of this panel alone.
    """

    name: str
    title: str
    keys: Sequence[PanelKey]

    def read(self) -> float:
        """Read the values, or a part of them; returns the seconds until the next reading. Errors as in the command."""

    def view(self) -> View:
        """Return what was read last, as the command prints it."""

    def detail(self, subject: str) -> Detail | None:
        """Return a subject in full; None if it is not in the last reading."""

    @property
    def command(self) -> str:
        """Command that prints the panel."""


@dataclass
class CommandLine:
    """The command of a panel: names of commands, and options, which keys change. Value None: a flag."""

    names: Sequence[str]
    options: dict[str, str | None] = field(default_factory=dict)
    repeated: Sequence[tuple[str, str]] = ()

    @property
    def arguments(self) -> list[str]:
        """Arguments after the command's name."""
        pairs = [*self.options.items(), *self.repeated]
        return [word for name, value in pairs for word in ([name] if value is None else [name, value])]

    def __str__(self) -> str:
        return shell_text([*self.names, *self.arguments])

    def toggle(self, name: str, value: str | None = None) -> None:
        """Set an option, or remove it if it is set."""
        if name in self.options:
            self.options = {option: old for option, old in self.options.items() if option != name}
        else:
            self.options = {**self.options, name: value}

    def set(self, name: str, value: str) -> None:
        """Set an option; "" removes it."""
        rest = {option: old for option, old in self.options.items() if option != name}
        self.options = {**rest, name: value} if value else rest

    def request(self, command: click.Command, request: type[Request]) -> Request:
        """The request that the command gets for these arguments; `InvalidInput` if click refuses them."""
        return build(request, self._values(command))

    def _values(self, command: click.Command) -> Mapping[str, Any]:
        """Values of the command's options, as click parses them."""
        name = shell_text(self.names)
        try:
            with command.make_context(name, self.arguments) as context:
                return dict(context.params)
        except click.ClickException as error:
            raise InvalidInput(f"use {self}", error.format_message(), f"`{name} --help` lists its options") from error


def command_line(command: str, about: str = "") -> Line:
    """Line of a detail with a command to copy. `about`: comment behind it."""
    return Line(f"  {command}" + (f"  # {about}" if about else ""), command=command)


def shell_text(arguments: Sequence[str]) -> str:
    """A command of gpuctl for a shell."""
    return shlex.join(["gpuctl", *arguments])
