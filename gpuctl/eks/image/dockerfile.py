"""Bases of a Dockerfile, and its text with each of them pinned by digest (Docker, Dockerfile reference)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from gpuctl.core.errors import InvalidInput
from gpuctl.eks.image import reference
from gpuctl.eks.image.reference import Reference

ARG = re.compile(r"\s*ARG\s+(\w+)(?:=(\"[^\"]*\"|'[^']*'|\S*))?\s*", re.IGNORECASE)
FROM = re.compile(r"(\s*FROM\s+(?:--\S+\s+)*)(\S+)(?:\s+AS\s+(\S+))?\s*", re.IGNORECASE)
COPY = re.compile(r"(\s*COPY\s+(?:--\S+\s+)*?--from=)(\S+)(\s.*)", re.IGNORECASE | re.DOTALL)
VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)(?::?-([^}]*))?\})")
SCRATCH = "scratch"


@dataclass(frozen=True)
class Base:
    """An image that a line takes. `line` counts from 1; `start` and `end`: its place in that line."""

    line: int
    start: int
    end: int
    image: Reference


@dataclass
class _Reader:
    """A Dockerfile that is read line by line. `values`: of arguments before the first FROM. `stages`: their names."""

    arguments: Mapping[str, str]
    doing: str
    values: dict[str, str] = field(default_factory=dict)
    stages: set[str] = field(default_factory=set)
    images: list[Base] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    has_stage: bool = False

    def read(self, number: int, line: str) -> None:
        argument, stage = ARG.fullmatch(line), FROM.fullmatch(line)
        if argument and not self.has_stage:
            default = (argument[2] or "").strip("\"'")
            self.values[argument[1]] = self.arguments.get(argument[1], default)
        elif stage:
            self._add(number, stage, self.values)
            self.has_stage = True
            self.stages |= {stage[3].lower()} if stage[3] else set()
        elif copied := COPY.fullmatch(line):
            self._add(number, copied, {})

    def _add(self, number: int, image: re.Match[str], values: Mapping[str, str]) -> None:
        try:
            name = _expanded(image[2], values)
            if name.lower() not in {SCRATCH, *self.stages} and not name.isdigit():
                self.images.append(Base(number, image.start(2), image.end(2), reference.read(name, self.doing)))
        except InvalidInput as error:
            self.wrong.append(f"line {number}: {error.wrong}")


def bases(text: str, arguments: Mapping[str, str], doing: str) -> list[Base]:
    """Images that a Dockerfile takes from elsewhere; `InvalidInput` with every line whose image is not known."""
    reader = _Reader(arguments, doing)
    for number, line in enumerate(text.splitlines(), 1):
        reader.read(number, line)
    if reader.wrong:
        hint = "--base IMAGE sets the argument BASE, --build-arg NAME=VALUE others"
        raise InvalidInput(doing, "; ".join(reader.wrong), hint)
    if not reader.has_stage:
        raise InvalidInput(doing, "it has no line FROM", "name a Dockerfile with --file")
    return reader.images


def _expanded(text: str, values: Mapping[str, str]) -> str:
    def value(variable: re.Match[str]) -> str:
        name = variable[1] or variable[2]
        result = values.get(name) or variable[3]
        if not result:
            raise InvalidInput("", f"the argument {name} has no value")
        return result

    return VARIABLE.sub(value, text)


def pinned(text: str, digests: Mapping[Base, Reference]) -> str:
    """The Dockerfile with these images in place of those that it names; all else stays."""
    lines = text.splitlines()
    for base, image in digests.items():
        line = lines[base.line - 1]
        lines[base.line - 1] = f"{line[: base.start]}{image}{line[base.end :]}"
    return "".join(f"{line}\n" for line in lines)
