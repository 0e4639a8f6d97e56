"""Read what files record: facts of an earlier audit, outputs of other programs, or kernel logs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from gpuctl.audit import formats
from gpuctl.audit import read as log_file
from gpuctl.audit.formats import XML, mixed, recognise
from gpuctl.audit.formats.model import Record
from gpuctl.core.errors import InvalidInput
from gpuctl.core.text_files import open_text
from gpuctl.domain.findings import Finding
from gpuctl.domain.xid_lines import KernelLog

LOOK = 16 << 10  # characters that are inspected
MOST = 64 << 20  # characters of one output: the XML of eight GPUs has half a million
MOST_FILES, DEEPEST = 10_000, 5
HINT = (
    "pass a text file: output of nvidia-smi, dcgmi, ibstat, ethtool or lfs, a kernel log, or facts of --save; "
    "unpack archives"
)
XML_HINT = "save the whole output of nvidia-smi -q -x"
_FACTS = re.compile(r'\s*\{\s*"form": *\d')
FACTS = "facts"
LOG = "kernel log"


@dataclass(frozen=True)
class Recording:
    """A file. `format`: its name, FACTS or LOG. `record`: of an output; `log` and `faults`: of a kernel log.

    `notes`: what else is in a log. `once`: a node has one such file. `error`: why it could not be read.
    """

    path: Path
    format: str = ""
    record: Record | None = None
    log: KernelLog | None = None
    faults: list[str] = field(default_factory=list)
    notes: list[Finding] = field(default_factory=list)
    once: bool = False
    error: str = ""

    @property
    def unrecognised(self) -> bool:
        log = self.log
        known = log and (log.kernel_lines or log.xids or log.sxids or log.unreadable or self.faults or self.notes)
        return log is not None and not known


def read(path: Path) -> Recording:
    """Recognise a file by its content and read it; "-" is standard input.

    Raises InvalidInput if it cannot be read, is no text, or is an output that says nothing unless it is whole.
    """
    with open_text(path, HINT) as stream:
        start = stream.read(LOOK)
        start += stream.readline()
        if _FACTS.match(start) and str(path) != "-":
            return Recording(path, FACTS)
        known = recognise(start)
        if known is None:
            return _log(path, chain(start.splitlines(keepends=True), stream))
        text = start + stream.read(MOST)
    try:
        return Recording(path, known.name, formats.read(known, text), once=known.once)
    except ValueError as error:
        raise InvalidInput(
            f"read {path}", str(error), XML_HINT if known.name == XML else f"save {known.name} again"
        ) from error


def _log(path: Path, lines: Iterable[str]) -> Recording:
    notes = mixed.LogNotes()
    log, faults = log_file.read_lines(_noting(lines, notes))
    return Recording(path, LOG, log=log, faults=faults, notes=notes.findings())


def _noting(lines: Iterable[str], notes: mixed.LogNotes) -> Iterator[str]:
    """The same lines; what they have beside kernel messages is noted in passing."""
    for line in lines:
        notes.note(line)
        yield line


def read_folder(folder: Path) -> dict[str, list[Recording]]:
    """Recordings of the files in a folder and its folders, by node; a file that cannot be read has an `error`.

    A folder with files is a node. Where it has two files that a node has once, of other GPUs, the beginning of their
    names, up to the first dot or underscore, is the node. Raises InvalidInput without any file, and with too many.
    """
    nodes: dict[str, list[Recording]] = {}
    count = 0
    for at, paths in _folders(folder, DEEPEST):
        count += len(paths)
        if count > MOST_FILES:
            raise InvalidInput(
                f"read {folder}", f"it has more than {MOST_FILES} files", "pass the folders of a few nodes"
            )
        name = str(at.relative_to(folder)) if at != folder else folder.resolve().name
        for node, recordings in _nodes(name, at == folder, [_try(path) for path in paths]).items():
            nodes.setdefault(node, []).extend(recordings)
    if not nodes:
        raise InvalidInput(f"read {folder}", "it has no files", HINT)
    return nodes


def _folders(folder: Path, depth: int) -> Iterator[tuple[Path, list[Path]]]:
    """Folders with their files, sorted; folders below `depth` are files that cannot be read."""
    try:
        entries = sorted(folder.iterdir())
    except OSError as error:
        raise InvalidInput(f"read {folder}", error.strerror or str(error), "make it readable for your user") from error
    inner = [path for path in entries if path.is_dir() and not path.is_symlink() and depth]
    files = [
        path for path in entries if path not in inner and not path.name.startswith("._") and path.name != ".DS_Store"
    ]
    if files:
        yield folder, files
    for path in inner:
        yield from _folders(path, depth - 1)


def _try(path: Path) -> Recording:
    if path.is_symlink() or not path.is_file():
        return Recording(path, error="it is a link, a pipe, or too deep a folder")
    try:
        return read(path)
    except InvalidInput as error:
        return Recording(path, error=error.wrong)


def _nodes(name: str, top: bool, recordings: list[Recording]) -> dict[str, list[Recording]]:
    """Files of one folder by node."""
    if not _repeats(recordings):
        return {name: recordings}
    by_stem: dict[str, list[Recording]] = {}
    for recording in recordings:
        stem = re.split(r"[._]", recording.path.name.lstrip("._"))[0] or recording.path.name
        by_stem.setdefault(stem, []).append(recording)
    nodes: dict[str, list[Recording]] = {}
    for stem, members in by_stem.items():
        alone = _repeats(members)
        for recording in members:
            node = recording.path.name if alone else stem
            nodes.setdefault(node if top else f"{name}/{node}", []).append(recording)
    return nodes


def _repeats(recordings: list[Recording]) -> bool:
    """True if two files have what a node has once. Several outputs of the same GPUs are of one node."""
    known: dict[str, set[str]] = {}  # format -> GPUs of the files so far
    for recording in recordings:
        if not (recording.once and recording.record and recording.record.facts):
            continue
        uuids = _uuids(recording)
        if recording.format in known and not uuids & known[recording.format]:
            return True
        known.setdefault(recording.format, set()).update(uuids)
    return False


def _uuids(recording: Recording) -> set[str]:
    gpus = recording.record.facts.get("gpu", {}).get("gpus") if recording.record else ()
    return {gpu["uuid"] for gpu in gpus or () if gpu["uuid"]}
