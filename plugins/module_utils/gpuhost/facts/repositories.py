"""NVIDIA's package repositories as a host's apt or dnf has them, and the keys that may sign their packages."""

from __future__ import annotations

import configparser
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

from ..host import Host
from .package_lists import manager

APT_FILES = ("/etc/apt/sources.list", "/etc/apt/sources.list.d/*.list", "/etc/apt/sources.list.d/*.sources")
DNF_FILES = ("/etc/yum.repos.d/*.repo",)
DNF_CONF = "/etc/dnf/dnf.conf"
KEY_FOLDERS = ("/usr/share/keyrings", "/etc/apt/keyrings", "/etc/apt/trusted.gpg.d", "/etc/pki/rpm-gpg")
# A home of its own: without one, gpg creates ~/.gnupg even to show a file.
GPG = ("gpg", "--batch", "--no-keyring", "--no-options", "--lock-never", "--with-colons", "--show-keys")
_NVIDIA = re.compile("nvidia|cuda", re.IGNORECASE)
_ONE_LINE = re.compile(r"\s*deb\s+(?:\[(?P<options>[^\]]*)\]\s+)?(?P<uri>\S+)\s")
_YES = ("yes", "true", "1", "on")
_PRIMARY = re.compile(
    r"^pub:(?P<validity>[^:]*):.*\n(?:(?!pub:|fpr:).*\n)*fpr:+(?P<key>[0-9A-F]{40,64}):", re.MULTILINE
)
UNUSABLE = {"e": "expired", "r": "revoked", "i": "invalid", "d": "disabled"}


class BadKey(Exception):
    """A key that gpg cannot read; the message is its reason."""


def repositories(host: Host) -> list[dict[str, Any]]:
    """Enabled repositories whose address or file names NVIDIA or CUDA.

    `keys`: files, addresses or fingerprints of the keys that may sign; empty: any key that the package manager trusts.
    `verified`: False if signatures are not checked.
    """
    rows = [*_apt(host), *_dnf(host)]
    return [row for row in rows if _NVIDIA.search(row["uri"]) or _NVIDIA.search(os.path.basename(row["file"]))]


def _apt(host: Host) -> Iterator[dict[str, Any]]:
    for path in [path for pattern in APT_FILES for path in host.glob(pattern)]:
        text = host.read_or_none(path) or ""
        yield from _stanzas(path, text) if path.endswith(".sources") else _lines(path, text)


def _lines(path: str, text: str) -> Iterator[dict[str, Any]]:
    for line in text.splitlines():
        match = _ONE_LINE.match(line)
        if match:
            options = dict(word.lower().partition("=")[::2] for word in (match["options"] or "").split())
            signed = re.search(r"signed-by=(\S+)", match["options"] or "", re.IGNORECASE)
            keys = signed[1].split(",") if signed else []
            yield _row(path, match["uri"], keys, options.get("trusted", "") not in _YES)


def _stanzas(path: str, text: str) -> Iterator[dict[str, Any]]:
    """Stanzas of a .sources file; a key inside the stanza is "FILE (inline)"."""
    for stanza in re.split(r"\n\s*\n", text):
        fields: dict[str, str] = {}
        name = ""
        for line in stanza.splitlines():
            if line.startswith("#"):
                continue
            if line[:1].isspace():
                fields[name] = f"{fields.get(name, '')}\n{line.strip()}"
            elif ":" in line:
                name, _, value = line.partition(":")
                name = name.strip().lower()
                fields[name] = value.strip()
        if "deb" not in fields.get("types", "").split() or fields.get("enabled", "yes").lower() not in _YES:
            continue
        signed = fields.get("signed-by", "")
        keys = [f"{path} (inline)"] if "BEGIN PGP" in signed else re.split(r"[\s,]+", signed) if signed else []
        for uri in fields.get("uris", "").split():
            yield _row(path, uri, keys, fields.get("trusted", "").lower() not in _YES)


def _dnf(host: Host) -> Iterator[dict[str, Any]]:
    default = _sections(host.read_or_none(DNF_CONF) or "").get("main", {}).get("gpgcheck", "0")
    for path in [path for pattern in DNF_FILES for path in host.glob(pattern)]:
        for section in _sections(host.read_or_none(path) or "").values():
            uri = next((section[name] for name in ("baseurl", "mirrorlist", "metalink") if section.get(name)), "")
            if section.get("enabled", "1").lower() in _YES and uri:
                keys = re.split(r"[\s,]+", section["gpgkey"].strip()) if section.get("gpgkey") else []
                checked = section.get("gpgcheck", default).lower() in _YES
                yield _row(path, uri.split()[0], [key.removeprefix("file://") for key in keys], checked)


def _sections(text: str) -> Mapping[str, Mapping[str, str]]:
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    try:
        parser.read_string(text)
    except configparser.Error:
        return {}
    return {name: dict(parser[name]) for name in parser.sections()}


def _row(path: str, uri: str, keys: list[str], verified: bool) -> dict[str, Any]:
    # The address may have a password in it, which nobody needs here.
    return {"file": path, "uri": re.sub(r"//[^/@]*@", "//", uri), "keys": keys, "verified": verified}


def keys(host: Host, rows: list[dict[str, Any]]) -> list[dict[str, str]]:
    """`name` (file), `fingerprint` and `unusable` (expired, revoked; "" if it can be used) of keys.

    These are the keys in files whose name has nvidia or cuda, the ones that sign `rows`, and the ones that rpm has
    imported. A second key of a file is "FILE 2". BadKey if gpg cannot read one, or is missing where there is one.
    """
    texts = {path: "" for folder in KEY_FOLDERS for path in host.glob(f"{folder}/*") if _NVIDIA.search(path)}
    texts.update({key: "" for row in rows for key in row["keys"] if key.startswith("/") and host.exists(key)})
    texts.update(_inline(host, rows))
    texts.update(_imported(host))
    if not texts:
        return []
    readings: list[dict[str, str]] = []
    with host.scratch_folder() as home:
        for name, text in texts.items():
            argv = GPG if text else (*GPG, host.real(name))
            result = host.run(*argv, stdin=text, limit=20, environment={"GNUPGHOME": home})
            # The first fpr line after a pub line is of that key, the others of its subkeys.
            primary = list(_PRIMARY.finditer(result.out))
            if not result.ok or not primary:
                raise BadKey(f"{name}: {result.last_line}")
            readings += [
                {
                    "name": name if not number else f"{name} {number + 1}",
                    "fingerprint": match["key"],
                    "unusable": UNUSABLE.get(match["validity"], ""),
                }
                for number, match in enumerate(primary)
            ]
    return readings


def _inline(host: Host, rows: list[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    for path in {row["file"] for row in rows if any(key.endswith(" (inline)") for key in row["keys"])}:
        blocks = re.findall(r"-----BEGIN PGP.*?-----END PGP[^\n]*", host.read(path), re.DOTALL)
        # A line with a single dot stands for an empty one, and every line is indented.
        text = "\n".join(re.sub(r"^\s*\.?\s*$|^\s+", "", line) for block in blocks for line in block.splitlines())
        yield f"{path} (inline)", f"{text}\n"


def _imported(host: Host) -> Iterator[tuple[str, str]]:
    if manager(host) != "dnf" or not host.which("rpm"):
        return
    form = "%{NAME}-%{VERSION}-%{RELEASE}\t%{SUMMARY}\n%{DESCRIPTION}\n"
    result = host.run("rpm", "-q", "gpg-pubkey", "--qf", form, limit=20)
    # Exit status 1 says that no key is imported.
    for match in re.finditer(
        r"^(gpg-pubkey-\S+)\t(.*)\n(-----BEGIN PGP.*?-----END PGP[^\n]*)", result.out, re.MULTILINE | re.DOTALL
    ):
        if _NVIDIA.search(match[2]):
            yield match[1], f"{match[3]}\n"
