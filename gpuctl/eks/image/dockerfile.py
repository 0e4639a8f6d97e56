"""Bases of a Dockerfile, and its text with each of them pinned by digest (Docker, Dockerfile reference)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from gpuctl.core.errors import InvalidInput
from gpuctl.eks.image import reference
from gpuctl.eks.image.reference import Reference

ARG = re.compile(r"\s*ARG\s+(\w+)(?:=(\"[^\"]*\"|'[^']*'|\S*))?\s*", re.IGNORECASE)
WORD = re.compile(r"\s*(\w+)")
FLAGS = re.compile(r"\s*\w+((?:\s+--\S+)*)")  # of an instruction, before its arguments
ESCAPE = re.compile(r"(?:\s*#\s*\w+\s*=[^\n]*\n)*?\s*#\s*escape\s*=\s*([\\`])\s*(?:\n|$)", re.IGNORECASE)
HEREDOC = re.compile(r"(?<!\S)\d*<<(-?)([\"']?)([^\s<\"']+)\2(?!\S)")  # not 1<<3 of a shell
KEY_FROM, QUOTE = re.compile(r"\bfrom\s*=|--from\b", re.IGNORECASE), re.compile(r"[\"']")
FROM = re.compile(r"(\s*FROM\s+(?:--\S+\s+)*)(\S+)(?:\s+AS\s+(\S+))?\s*", re.IGNORECASE)
COPY_FROM = re.compile(r"(\s--from=)(\S+)", re.IGNORECASE)
MOUNT_FROM = re.compile(r"(\s--mount=(?:[^\s,]*,)*from=)([^\s,]+)", re.IGNORECASE)
VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)(?::?-([^}]*))?\})")
SCRATCH = "scratch"


@dataclass(frozen=True)
class Base:
    """An image that an instruction takes, which begins in `line`, from 1; `start` and `end`: its place in the text."""

    line: int
    start: int
    end: int
    image: Reference


@dataclass(frozen=True)
class _Instruction:
    """An instruction on one line: what joins its lines is spaces. `start`: its place in the Dockerfile."""

    line: int
    start: int
    text: str

    @property
    def word(self) -> str:
        word = WORD.match(self.text)
        return word[1].upper() if word else ""


def _instructions(text: str) -> Iterator[_Instruction]:
    """Instructions of a Dockerfile, without comments and here-documents; each is as long as in the file."""
    directive = ESCAPE.match(text)
    escape = directive[1] if directive else "\\"
    lines, number, start = text.split("\n"), 0, 0
    while number < len(lines):
        first, parts = number, list[str]()
        while number < len(lines):
            part, goes_on = _part(lines[number], escape, inside=bool(parts))
            parts.append(part)
            number += 1
            if not goes_on:
                break
        one = _Instruction(first + 1, start, " ".join(parts))
        yield one
        if one.word in ("RUN", "COPY", "ADD"):
            for dash, _, end in HEREDOC.findall(one.text):
                ends = (place for place in range(number, len(lines)) if _ends(lines[place], end, tabs=bool(dash)))
                number = next(ends, number - 1) + 1
        start = sum(len(line) + 1 for line in lines[:number])


def _ends(line: str, end: str, *, tabs: bool) -> bool:
    return (line.lstrip("\t") if tabs else line) == end


def _part(line: str, escape: str, *, inside: bool) -> tuple[str, bool]:
    """A line without what joins it to the next, and whether it is joined. `inside`: an instruction has begun."""
    content = line.rstrip()
    if line.lstrip().startswith("#"):
        return " " * len(line), inside
    if content.endswith(escape):
        return content[:-1].ljust(len(line)), True
    return line, inside and not content


@dataclass
class _Reader:
    """A Dockerfile, read by instructions. `values`: of arguments before the first FROM. `stages`: their names."""

    arguments: Mapping[str, str]
    doing: str
    values: dict[str, str] = field(default_factory=dict)
    stages: set[str] = field(default_factory=set)
    images: list[Base] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    has_stage: bool = False

    def read(self, one: _Instruction) -> None:
        argument = ARG.fullmatch(one.text)
        if argument and not self.has_stage:
            default = (argument[2] or "").strip("\"'")
            self.values[argument[1]] = self.arguments.get(argument[1], default)
        elif one.word == "FROM":
            self._stage(one)
        elif one.word in ("COPY", "RUN"):
            self._flags(one, COPY_FROM if one.word == "COPY" else MOUNT_FROM)

    def _stage(self, one: _Instruction) -> None:
        self.has_stage = True
        if stage := FROM.fullmatch(one.text):
            self._add(one, stage, self.values)
            self.stages |= {stage[3].lower()} if stage[3] else set()
        else:
            self.wrong.append(f"line {one.line}: this FROM is not understood")

    def _flags(self, one: _Instruction, taken: re.Pattern[str]) -> None:
        """Images that flags before the arguments name; each `from` in them must be understood."""
        before = FLAGS.match(one.text)
        flags = before[0] if before else ""
        names = list(taken.finditer(flags))
        if KEY_FROM.search(taken.sub(" ", flags)) or (QUOTE.search(flags) and KEY_FROM.search(one.text)):
            self.wrong.append(f"line {one.line}: the image of this {one.word} is not understood")
            return
        for name in names:
            self._add(one, name, {})

    def _add(self, one: _Instruction, image: re.Match[str], values: Mapping[str, str]) -> None:
        try:
            name = _expanded(image[2], values)
            if name.lower() not in {SCRATCH, *self.stages} and not name.isdigit():
                place = one.start + image.start(2), one.start + image.end(2)
                self.images.append(Base(one.line, *place, reference.read(name, self.doing)))
        except InvalidInput as error:
            self.wrong.append(f"line {one.line}: {error.wrong}")


def bases(text: str, arguments: Mapping[str, str], doing: str) -> list[Base]:
    """Images that a Dockerfile takes from elsewhere; `InvalidInput` with every line whose image is not known."""
    reader = _Reader(arguments, doing)
    for one in _instructions(text):
        reader.read(one)
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
    for base, image in sorted(digests.items(), key=lambda pair: -pair[0].start):
        text = f"{text[: base.start]}{image}{text[base.end :]}"
    return text
