"""The folder that an image is built from: which of its files are sent, and as a stream of a tar archive.

The archive is made while it is sent, in pieces: a folder of any size takes little memory and no disk.
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
PIECE = 1 << 18  # bytes that are read at a time
GZIP = 31  # zlib's word for the form of gzip, with the largest window
NANO = 10**9


@dataclass(frozen=True)
class Member:
    """A path in the archive, and where its content is here."""

    path: str
    item: Item
    at: Path


@dataclass(frozen=True)
class Context:
    """What is sent."""

    members: tuple[Member, ...]

    @property
    def files(self) -> int:
        return sum(each.item.kind == FILE for each in self.members)

    @property
    def size(self) -> int:
        """Bytes of all files, before they are packed."""
        return sum(each.item.source[0] for each in self.members if each.item.kind == FILE)


def read(folder: Path, inside: str = "", own_dockerfile: bool = False) -> Context:
    """What of a folder is sent; `inside`: the folder in it that is built in; `own_dockerfile`: it has to have one.

    What .dockerignore and the sync leave out is left out. `InvalidInput` without Dockerfile or Containerfile, or if a
    file cannot be read.
    """
    doing = f"build from {folder}"
    if not folder.is_dir():
        raise InvalidInput(doing, "there is no such folder", "give another --folder")
    found = scan.scan(folder, excludes.of(folder, ()))
    left_out = dockerignore.of(folder)
    if unread := {path or ".": why for path, why in found.unread.items() if not path or not left_out(path)}:
        told = "; ".join(f"{path}: {why}" for path, why in list(unread.items())[:3])
        raise InvalidInput(doing, f"not all of it can be read: {told}", "name it in .dockerignore, or mend its rights")
    taken = {path: Member(path, item, folder / path) for path, item in found.items.items() if not left_out(path)}
    if own_dockerfile:
        taken |= _with_dockerfile(folder, f"{inside}/" if inside else "", doing)
    return Context(tuple(taken[path] for path in sorted(taken)))


def _with_dockerfile(folder: Path, inside: str, doing: str) -> dict[str, Member]:
    """It is sent although a pattern leaves it out; a Containerfile goes by the name that the builder looks for."""
    wanted = f"{inside}{DOCKERFILE}"
    for name in (DOCKERFILE, CONTAINERFILE):
        source = folder / f"{inside}{name}"
        if source.is_file():
            return {wanted: Member(wanted, scan.item(FILE, source.stat()), source)}
    where = f"its folder {inside.rstrip('/')}" if inside else "it"
    hint = "write one, give another --folder, or put it into the cluster file as image.build.dockerfile"
    raise InvalidInput(doing, f"{where} has neither a {DOCKERFILE} nor a {CONTAINERFILE}", hint)


# ---- the archive ----------------------------------------------------------------------------------------------------


def stream(context: Context, sent: Callable[[int], None] = lambda _: None) -> Iterator[bytes]:
    """A gzipped tar archive, piece by piece; `sent` hears how many bytes of files were read so far.

    `GpuctlError` where a file changed so that it cannot be sent any more.
    """
    packer = zlib.compressobj(6, zlib.DEFLATED, GZIP)
    for piece in _archive(context.members, sent):
        if packed := packer.compress(piece):
            yield packed
    yield packer.flush()


def _archive(members: Iterable[Member], sent: Callable[[int], None]) -> Iterator[bytes]:
    done = 0
    for each in members:
        yield _header(each).tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")
        if each.item.kind != FILE:
            continue
        for piece in _content(each):
            yield piece
            done += len(piece)
            sent(done)
        yield b"\0" * (-each.item.source[0] % tarfile.BLOCKSIZE)
    yield b"\0" * (2 * tarfile.BLOCKSIZE)


def _header(each: Member) -> tarfile.TarInfo:
    """Nobody's in particular: what owns it in the image is for the Dockerfile to say."""
    found = tarfile.TarInfo(each.path)
    size, changed, _ = each.item.source
    found.mode = each.item.mode
    if each.item.kind == FOLDER:
        found.type = tarfile.DIRTYPE
    elif each.item.kind == LINK:
        found.type, found.linkname = tarfile.SYMTYPE, each.item.to
    else:
        found.size, found.mtime = size, changed // NANO
    return found


def _content(each: Member) -> Iterator[bytes]:
    """As many bytes as the header says."""
    left = each.item.source[0]
    try:
        with each.at.open("rb") as content:
            while left and (piece := content.read(min(PIECE, left))):
                left -= len(piece)
                yield piece
    except OSError as error:
        raise GpuctlError(f"send {each.path}", error.strerror or str(error), "the same command tries again") from error
    if left:
        raise GpuctlError(f"send {each.path}", "it became shorter while it was read", "the same command tries again")
