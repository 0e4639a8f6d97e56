"""The archive of EFA's installer: fetched, verified by signature and pinned fingerprint, then unpacked."""

from __future__ import annotations

import os
import re

from ..download import download
from ..facts import openpgp
from ..host import Host
from ..unpack import BadArchive, unpack
from .source import SCRIPT, VERIFIER, Source

TOP = "aws-efa-installer"
KEY = f"{TOP}.key"
LIMIT_S = 3600.0


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
    unpack(archive, folder, TOP)
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
