"""Archives of source code or installers, unpacked into a private folder: plain files below one folder, nothing else."""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import tarfile

MOST_MEMBERS, MOST_BYTES = 20_000, 8 << 30  # far above those of the archives that gpuctl uses


class BadArchive(RuntimeError):
    """An archive that must not be used; the message is the reason."""


def unpack(archive: str, folder: str, top: str) -> None:
    """Unpack plain files and folders below `top`; `BadArchive` for a member that could be written elsewhere."""
    import tarfile  # slow to load, and needed by few visits

    try:
        with tarfile.open(archive) as tar:
            members = tar.getmembers()
            if len(members) > MOST_MEMBERS or sum(member.size for member in members) > MOST_BYTES:
                raise BadArchive(f"it is larger than any archive of {top}")
            links = {os.path.normpath(member.name) for member in members if member.issym()}
            for member in members:
                _check_member(member, links, top)
                member.uid = member.gid = os.geteuid()
                member.uname = member.gname = ""
                member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            # Every member has been checked above; the filter "data" does not exist in older Python 3.9.
            tar.extractall(folder, members)  # noqa: S202
    except (tarfile.TarError, EOFError, OSError) as error:
        raise BadArchive(f"it cannot be unpacked: {error}") from error


def _check_member(member: tarfile.TarInfo, links: Collection[str], top: str) -> None:
    """Refuse a member outside of `top`, or below a link, whose real place its name does not show."""
    name = os.path.normpath(member.name)
    if any(name.startswith(f"{link}/") for link in links):
        raise BadArchive(f"it has {member.name!r}, below a link")
    if name != top and not name.startswith(f"{top}/"):
        raise BadArchive(f"it has {member.name!r}, outside of {top}")
    if member.issym():
        target = os.path.normpath(os.path.join(os.path.dirname(name), member.linkname))
        if os.path.isabs(member.linkname) or not target.startswith(f"{top}/"):
            raise BadArchive(f"it has a link to {member.linkname!r}, outside of {top}")
    elif not (member.isfile() or member.isdir()):
        raise BadArchive(f"it has {member.name!r}, which is neither file nor folder")
