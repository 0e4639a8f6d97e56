"""The build context: the files of a folder that are sent, as a stream of a tar archive.

The archive is created in pieces while it is sent: a folder of any size needs little memory and no disk.
"""

from __future__ import annotations

import tarfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from gpuctl.cluster.image_build import dockerignore
from gpuctl.cluster.sync import excludes, scan
from gpuctl.cluster.sync.model import FILE, FOLDER, LINK, Item
from gpuctl.core.errors import GpuctlError, InvalidInput

DOCKERFILE, CONTAINERFILE = "Dockerfile", "Containerfile"
PIECE = 1 << 18  # bytes per read
GZIP = 31  # zlib's code for the gzip format, with the largest window
NANO = 10**9


@dataclass(frozen=True)
class Member:
    """A path in the archive, and the local path of its content."""

    path: str
    item: Item
    at: Path


@dataclass(frozen=True)
class Context:
    """The files to send."""

    members: tuple[Member, ...]

    @property
    def files(self) -> int:
        return sum(member.item.kind == FILE for member in self.members)

    @property
    def size(self) -> int:
        """Bytes of all files, uncompressed."""
        return sum(member.item.source[0] for member in self.members if member.item.kind == FILE)


def read(folder: Path, inside: str = "", needs_dockerfile: bool = False) -> Context:
    """Collect a folder's files to send; `inside`: the subfolder to build; `needs_dockerfile`: a Dockerfile must exist.

    Files excluded by .dockerignore or by sync are not sent. Raises `InvalidInput` without a Dockerfile or
    Containerfile, or if a file cannot be read.
    """
    doing = f"build from {folder}"
    if not folder.is_dir():
        raise InvalidInput(doing, "the folder does not exist", "use another --folder")
    scanned = scan.scan(folder, excludes.read_patterns(folder, ()))
    left_out = dockerignore.read_patterns(folder)
    if unread := {path or ".": why for path, why in scanned.unread.items() if not path or not left_out(path)}:
        reasons = "; ".join(f"{path}: {why}" for path, why in list(unread.items())[:3])
        raise InvalidInput(
            doing, f"not all of it can be read: {reasons}", "list it in .dockerignore, or correct its permissions"
        )
    taken = {path: Member(path, item, folder / path) for path, item in scanned.items.items() if not left_out(path)}
    if needs_dockerfile:
        taken |= _with_dockerfile(folder, f"{inside}/" if inside else "", doing)
    return Context(tuple(taken[path] for path in sorted(taken)))


def _with_dockerfile(folder: Path, inside: str, doing: str) -> dict[str, Member]:
    """Include the Dockerfile even if a pattern excludes it; a Containerfile is sent as the builder's `Dockerfile`."""
    target = f"{inside}{DOCKERFILE}"
    for name in (DOCKERFILE, CONTAINERFILE):
        source = folder / f"{inside}{name}"
        if source.is_file():
            return {target: Member(target, scan.item(FILE, source.stat()), source)}
    where = f"its folder {inside.rstrip('/')}" if inside else "it"
    hint = "write one, use another --folder, or put it into the cluster file as image.build.dockerfile"
    raise InvalidInput(doing, f"{where} has neither a {DOCKERFILE} nor a {CONTAINERFILE}", hint)


# ---- the archive ----------------------------------------------------------------------------------------------------


def stream(context: Context, sent: Callable[[int], None] = lambda _: None) -> Iterator[bytes]:
    """Yield a gzipped tar archive in pieces; `sent` receives the number of file bytes read so far.

    Raises `GpuctlError` if a file changed so that it cannot be sent any more.
    """
    packer = zlib.compressobj(6, zlib.DEFLATED, GZIP)
    for piece in _archive(context.members, sent):
        if packed := packer.compress(piece):
            yield packed
    yield packer.flush()


def _archive(members: Iterable[Member], sent: Callable[[int], None]) -> Iterator[bytes]:
    done = 0
    for member in members:
        yield _header(member).tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")
        if member.item.kind != FILE:
            continue
        for piece in _content(member):
            yield piece
            done += len(piece)
            sent(done)
        yield b"\0" * (-member.item.source[0] % tarfile.BLOCKSIZE)
    yield b"\0" * (2 * tarfile.BLOCKSIZE)


def _header(member: Member) -> tarfile.TarInfo:
    """Return a member's header without an owner: the Dockerfile decides that."""
    header = tarfile.TarInfo(member.path)
    size, changed, _ = member.item.source
    header.mode = member.item.mode
    if member.item.kind == FOLDER:
        header.type = tarfile.DIRTYPE
    elif member.item.kind == LINK:
        header.type, header.linkname = tarfile.SYMTYPE, member.item.to
    else:
        header.size, header.mtime = size, changed // NANO
    return header


def _content(member: Member) -> Iterator[bytes]:
    """Yield exactly as many bytes as the header announces."""
    left = member.item.source[0]
    try:
        with member.at.open("rb") as content:
            while left and (piece := content.read(min(PIECE, left))):
                left -= len(piece)
                yield piece
    except OSError as error:
        raise GpuctlError(f"send {member.path}", error.strerror or str(error), "run the same command again") from error
    if left:
        raise GpuctlError(f"send {member.path}", "it became shorter while it was read", "run the same command again")
