"""The archive of EFA's installer: fetched, verified by signature and pinned fingerprint, then unpacked."""

from __future__ import annotations

import os
import re
import tarfile
from collections.abc import Collection

from ..download import download
from ..facts import openpgp
from ..host import Host
from .source import SCRIPT, VERIFIER, Source

TOP = "aws-efa-installer"
KEY = f"{TOP}.key"
LIMIT_S = 3600.0
MOST_MEMBERS, MOST_BYTES = 20_000, 8 << 30  # far above those of AWS's archives


class BadArchive(RuntimeError):
    """An archive that must not be used; the message is the reason."""


def name_of(version: str) -> str:
    return f"{TOP}-{version}.tar.gz"


def has(host: Host, where: Source, version: str) -> str:
    """Why the source does not have a version, by its signature, which is small; "" if it has."""
    with host.scratch_folder() as scratch:
        return download(host, f"{where.uri}/{name_of(version)}.sig", os.path.join(scratch, "sig"))


def obtain(host: Host, where: Source, version: str, folder: str) -> str:
    """Fetch, verify and unpack an installer into a private folder; return the path of its own folder.

    Nothing is unpacked of an archive whose signature or key is wrong: `BadArchive`.
    """
    for name in (KEY, f"{name_of(version)}.sig", name_of(version)):
        wrong = download(host, f"{where.uri}/{name}", os.path.join(folder, name), LIMIT_S)
        if wrong:
            raise BadArchive(f"cannot fetch it: {wrong}")
    archive = os.path.join(folder, name_of(version))
    verify(host, where, archive)
    unpack(archive, folder)
    os.unlink(archive)  # it is large
    root = os.path.join(folder, TOP)
    _check_version(root, version)
    return root


def verify(host: Host, where: Source, archive: str) -> None:
    """Check that a key with a pinned fingerprint has signed the archive; `BadArchive` if not.

    Key and signature (.sig) lie in the folder of the archive, a path on this machine.
    """
    folder = os.path.dirname(archive)
    key = _text(os.path.join(folder, KEY))
    found = openpgp.fingerprints(key)
    if not found:
        raise BadArchive(f"{where.uri}/{KEY} has no OpenPGP key in ASCII armour")
    strange = [name for name in found if name not in where.fingerprints]
    if strange:
        pinned = " or ".join(where.fingerprints)
        raise BadArchive(f"the key of {where.uri} has the fingerprint {strange[0]}, pinned is {pinned}")
    keyring = os.path.join(folder, "keyring.gpg")
    with open(keyring, "wb") as stream:
        stream.write(openpgp.binary(key))
    done = host.run(VERIFIER, "--status-fd", "1", "--keyring", keyring, f"{archive}.sig", archive, limit=600)
    if done.code == 127:
        raise BadArchive(f"its signature cannot be checked: {VERIFIER} is not on this host")
    signers = re.findall(r"^\[GNUPG:\] VALIDSIG .* ([0-9A-F]{40})$", done.out, re.MULTILINE)
    if not done.ok or not signers or any(name not in where.fingerprints for name in signers):
        bad = re.search(r"^\[GNUPG:\] (BADSIG|ERRSIG|NO_PUBKEY|NODATA|EXPSIG)", done.out, re.MULTILINE)
        raise BadArchive(f"its signature is wrong ({bad[1] if bad else done.last_line}), so nothing of it was unpacked")


def unpack(archive: str, folder: str) -> None:
    """Unpack plain files and folders below TOP; `BadArchive` for a member that could be written elsewhere."""
    try:
        with tarfile.open(archive) as tar:
            members = tar.getmembers()
            if len(members) > MOST_MEMBERS or sum(member.size for member in members) > MOST_BYTES:
                raise BadArchive("it is larger than any installer of EFA")
            links = {os.path.normpath(member.name) for member in members if member.issym()}
            for member in members:
                _check_member(member, links)
                member.uid = member.gid = os.geteuid()
                member.uname = member.gname = ""
                member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            # Every member has been checked above; the filter "data" does not exist in older Python 3.9.
            tar.extractall(folder, members)  # noqa: S202
    except (tarfile.TarError, EOFError, OSError) as error:
        raise BadArchive(f"it cannot be unpacked: {error}") from error


def _check_member(member: tarfile.TarInfo, links: Collection[str]) -> None:
    """Refuse a member outside of TOP, or below a link, whose real place its name does not show."""
    name = os.path.normpath(member.name)
    if any(name.startswith(f"{link}/") for link in links):
        raise BadArchive(f"it has {member.name!r}, below a link")
    if name != TOP and not name.startswith(f"{TOP}/"):
        raise BadArchive(f"it has {member.name!r}, outside of {TOP}")
    if member.issym():
        target = os.path.normpath(os.path.join(os.path.dirname(name), member.linkname))
        if os.path.isabs(member.linkname) or not target.startswith(f"{TOP}/"):
            raise BadArchive(f"it has a link to {member.linkname!r}, outside of {TOP}")
    elif not (member.isfile() or member.isdir()):
        raise BadArchive(f"it has {member.name!r}, which is neither file nor folder")


def _check_version(root: str, version: str) -> None:
    """A signed archive of another version, under the name of this one, is refused."""
    if not os.path.isfile(os.path.join(root, SCRIPT)):
        raise BadArchive(f"it has no {TOP}/{SCRIPT}")
    texts = _text(os.path.join(root, "env.sh"))
    match = re.search(r"^\s*(?:export\s+)?EFA_INSTALLER_VERSION=[\"']?([\d.]+)", texts, re.MULTILINE)
    if match is None or match[1] != version:
        raise BadArchive(f"it is the installer {match[1] if match else 'of an unknown version'}, not {version}")


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as stream:
            return stream.read()
    except FileNotFoundError:
        return ""
