"""Fingerprints of OpenPGP keys in ASCII armour (RFC 4880), without gpg, which many hosts do not have."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Iterator

_BLOCK = re.compile(
    r"-----BEGIN PGP PUBLIC KEY BLOCK-----\n(?:[^\n]*: [^\n]*\n)*\n?(.*?)-----END PGP PUBLIC KEY BLOCK-----", re.DOTALL
)
PUBLIC_KEY, VERSION = 6, 4


def fingerprints(text: str) -> list[str]:
    """Fingerprints of the primary keys, 40 hexadecimal digits each; empty if the text has no key of version 4."""
    found: list[str] = []
    text = text.replace("\r", "")
    if text.count("-----BEGIN PGP") != len(_BLOCK.findall(text)):  # one that others might read
        return []
    for match in _BLOCK.finditer(text):
        try:
            found += [_fingerprint(body) for tag, body in _packets(_decoded(match)) if tag == PUBLIC_KEY]
        except (binascii.Error, IndexError, ValueError):
            return []
    return found


def binary(text: str) -> bytes:
    """The keys of a text for which `fingerprints` has found some, as a keyring."""
    return b"".join(_decoded(match) for match in _BLOCK.finditer(text.replace("\r", "")))


def _decoded(match: re.Match[str]) -> bytes:
    lines = [line.strip() for line in match.group(1).splitlines()]
    encoded = "".join(line for line in lines if line and not line.startswith("="))  # = begins the checksum
    return base64.b64decode(encoded, validate=True)


def _fingerprint(body: bytes) -> str:
    if not body or body[0] != VERSION:
        raise ValueError("a key of another version")
    return hashlib.sha1(b"\x99" + len(body).to_bytes(2, "big") + body).hexdigest().upper()  # noqa: S324 - its definition


def _packets(data: bytes) -> Iterator[tuple[int, bytes]]:
    """(tag, body) of each packet; IndexError or ValueError if the data is cut off or not of this form."""
    at = 0
    while at < len(data):
        first = data[at]
        if not first & 0x80:
            raise ValueError("no packet")
        tag, size, at = _new_form(data, at) if first & 0x40 else _old_form(data, at)
        if at + size > len(data):
            raise ValueError("cut off")
        yield tag, data[at : at + size]
        at += size


def _old_form(data: bytes, at: int) -> tuple[int, int, int]:
    """(tag, length of the body, where it begins)."""
    octets = {0: 1, 1: 2, 2: 4}[data[at] & 3] if data[at] & 3 != 3 else 0
    if not octets:
        raise ValueError("a packet without a length")
    return (data[at] >> 2) & 0xF, int.from_bytes(data[at + 1 : at + 1 + octets], "big"), at + 1 + octets


def _new_form(data: bytes, at: int) -> tuple[int, int, int]:
    tag, length = data[at] & 0x3F, data[at + 1]
    if length < 192:
        return tag, length, at + 2
    if length < 224:
        return tag, ((length - 192) << 8) + data[at + 2] + 192, at + 3
    if length == 255:
        return tag, int.from_bytes(data[at + 2 : at + 6], "big"), at + 6
    raise ValueError("a packet in parts")
