"""Keys of repositories as a real gpg shows them: fingerprints, expired and revoked ones, without touching a keyring."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.facts import repositories
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.host import Host

from tests.rig.trees.host import put

pytestmark = pytest.mark.skipif(shutil.which("gpg") is None, reason="gpg is not installed")
KEYRINGS = "/usr/share/keyrings"


class Keys:
    """A person's keys, in a folder of the test's own."""

    def __init__(self, home: Path) -> None:
        self.home = home
        home.mkdir(mode=0o700)

    def gpg(self, *words: object) -> bytes:
        argv = ["gpg", "--batch", "--yes", "--pinentry-mode", "loopback", "--passphrase", "", *map(str, words)]
        environment = {**os.environ, "GNUPGHOME": str(self.home)}
        return subprocess.run(argv, check=True, capture_output=True, env=environment).stdout

    def make(self, name: str, *, expired: bool = False, revoked: bool = False) -> str:
        """Make a key; return its fingerprint."""
        then = ["--faked-system-time", "20250101T000000!"] if expired else []
        self.gpg(*then, "--quick-generate-key", name, "ed25519", "sign", "30d" if expired else "never")
        rows = self.gpg("--list-keys", "--with-colons", name).decode().splitlines()
        fingerprint = next(row.split(":")[9] for row in rows if row.startswith("fpr"))
        if revoked:
            certificate = self.home / "openpgp-revocs.d" / f"{fingerprint}.rev"
            plain = self.home / "revocation"
            plain.write_text(certificate.read_text().replace(":-----BEGIN", "-----BEGIN"))
            self.gpg("--import", plain)
        return fingerprint


@pytest.fixture
def keys(tmp_path: Path) -> Iterator[Keys]:
    made = Keys(tmp_path / "gnupg")
    yield made
    subprocess.run(["gpgconf", "--kill", "all"], check=False, env={**os.environ, "GNUPGHOME": str(made.home)})


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A host whose gpg is the real one."""
    root = tmp_path / "host"
    put(root, "/usr/bin/gpg", f'#!/bin/sh\nexec {shutil.which("gpg")} "$@"\n')
    (root / "usr/bin/gpg").chmod(0o755)
    (root / "tmp").mkdir()
    return root


def read(root: Path) -> list[dict[str, str]]:
    host = Host(root)
    return repositories.keys(host, repositories.repositories(host))


def store(root: Path, name: str, data: bytes) -> str:
    path = root / KEYRINGS[1:] / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return f"{KEYRINGS}/{name}"


def test_a_key_has_its_fingerprint_and_why_it_cannot_be_used(keys: Keys, root: Path) -> None:
    whole, expired, revoked = keys.make("whole"), keys.make("old", expired=True), keys.make("bad", revoked=True)
    for name, fingerprint in (("cuda", whole), ("nvidia-old", expired), ("nvidia-bad", revoked)):
        store(root, f"{name}.gpg", keys.gpg("--export", fingerprint))
    assert read(root) == [
        {"name": f"{KEYRINGS}/cuda.gpg", "fingerprint": whole, "unusable": ""},
        {"name": f"{KEYRINGS}/nvidia-bad.gpg", "fingerprint": revoked, "unusable": "revoked"},
        {"name": f"{KEYRINGS}/nvidia-old.gpg", "fingerprint": expired, "unusable": "expired"},
    ]
    assert [path.name for path in (root / "tmp").iterdir()] == []
    assert not (root / "root").exists()


def test_the_key_of_a_repository_is_read_whatever_its_file_is_called(keys: Keys, root: Path) -> None:
    one, two = keys.make("one"), keys.make("two")
    path = store(root, "site.asc", keys.gpg("--export", "--armor", one, two))
    put(
        root,
        "/etc/apt/sources.list.d/a.list",
        f"deb [signed-by={path} arch=amd64] http://mirror/compute/cuda/repos/x /\n",
    )
    assert {key["name"]: key["fingerprint"] for key in read(root)} == {path: one, f"{path} 2": two}


def test_a_key_inside_a_stanza_is_read(keys: Keys, root: Path) -> None:
    fingerprint = keys.make("inside")
    armour = keys.gpg("--export", "--armor", fingerprint).decode()
    indented = "\n".join(f" {line or '.'}" for line in armour.splitlines())
    stanza = f"Types: deb\nURIs: http://mirror/libnvidia-container/deb\nSuites: /\nSigned-By:\n{indented}\n"
    put(root, "/etc/apt/sources.list.d/toolkit.sources", stanza)
    name = "/etc/apt/sources.list.d/toolkit.sources (inline)"
    assert read(root) == [{"name": name, "fingerprint": fingerprint, "unusable": ""}]


def test_a_file_without_a_key_is_an_error_with_its_name(root: Path) -> None:
    store(root, "cuda.gpg", b"<html>404</html>")
    with pytest.raises(repositories.BadKey, match=r"cuda\.gpg: "):
        read(root)
