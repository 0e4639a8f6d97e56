"""Public ssh keys: each line is rebuilt from its type and its key, so that no option of authorized_keys passes."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from gpuctl.core.errors import InvalidInput

# OpenSSH's types (sshd(8), AUTHORIZED_KEYS FILE FORMAT); ssh-dss is left out, as sshd takes it no longer.
TYPES = (
    *("ssh-ed25519", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521", "ssh-rsa"),
    *("sk-ssh-ed25519@openssh.com", "sk-ecdsa-sha2-nistp256@openssh.com"),
)
PRIVATE = "PRIVATE KEY-----"
LEAST_RSA_BITS = 2048
NO_COMMENT = re.compile(r"[^A-Za-z0-9@._:+-]+")
MOST_OF_A_LINE = 16_384  # characters
BETWEEN = ","  # between origins; no origin has one
PERSONAL = "github:"  # origins of one person; everybody has a file id_ed25519.pub
ADD_KEYS = "add a key to the ssh agent, or use --key FILE or --github USER"
GITHUB_USER = re.compile(r"[A-Za-z0-9](?:-?[A-Za-z0-9]){0,38}")  # GitHub's rule for names


@dataclass(frozen=True)
class PublicKey:
    """A key that may log in. `data`: base64. `origins`: "agent", "file:NAME" or "github:USER"; its comment."""

    type: str
    data: str
    origins: tuple[str, ...]

    @property
    def line(self) -> str:
        return f"{self.type} {self.data} {self.origin}"

    @property
    def origin(self) -> str:
        """All origins as one word."""
        return BETWEEN.join(self.origins)

    @property
    def fingerprint(self) -> str:
        """Fingerprint as `ssh-keygen -l` prints it."""
        digest = hashlib.sha256(base64.b64decode(self.data)).digest()
        return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


@dataclass(frozen=True)
class Authorized:
    """Content of an authorized_keys file. `unknown`: line -> why gpuctl does not understand it; it may be a key."""

    keys: list[PublicKey]
    unknown: Mapping[int, str]


def parse(text: str, origin: str, doing: str) -> list[PublicKey]:
    """Keys of a text with one a line; `InvalidInput` names each line that is none, and never shows its content."""
    if PRIVATE in text:
        raise InvalidInput(doing, "it holds a private key", "name the public half: the file that ends in .pub")
    keys, wrong = [], []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        key = _key(line, (comment(origin),))
        if isinstance(key, str):
            wrong.append(f"line {number}: {key}")
        else:
            keys.append(key)
    if wrong:
        raise InvalidInput(doing, "; ".join(wrong[:5]), "a line is: TYPE BASE64 COMMENT, as ssh-keygen writes *.pub")
    return keys


def accepted(text: str, origin: str) -> list[PublicKey]:
    """Keys of a text with one a line that sshd takes; other lines, such as certificates or DSA keys, are left out."""
    keys = (_key(line, (comment(origin),)) for line in text.splitlines() if line.strip())
    return merged([], [key for key in keys if isinstance(key, PublicKey)])


def comment(origin: str) -> str:
    """An origin as a comment of one word."""
    return NO_COMMENT.sub("_", origin)[:100]


def _key(line: str, origins: tuple[str, ...]) -> PublicKey | str:
    """A key, or why it is none."""
    fields = line.split()
    if fields[0] not in TYPES:
        return "it does not begin with a type that sshd takes, such as ssh-ed25519"
    if len(fields) < 2 or len(line) > MOST_OF_A_LINE:
        return "what follows its type is no key"
    try:
        blob = base64.b64decode(fields[1], validate=True)
        parts = list(_parts(blob))
    except ValueError:  # binascii.Error is one, too
        return "the key is cut off or damaged"
    if len(parts) < 2 or parts[0] != fields[0].encode():
        return "the key is of another type than its line says"
    if fields[0] == "ssh-rsa" and int.from_bytes(parts[-1], "big").bit_length() < LEAST_RSA_BITS:
        return f"an RSA key of less than {LEAST_RSA_BITS} bits, which sshd may refuse"
    return PublicKey(fields[0], base64.b64encode(blob).decode(), origins)


def _parts(blob: bytes) -> Iterator[bytes]:
    """Fields of a key, each behind its length in four bytes (RFC 4253, section 6.6)."""
    at = 0
    while at < len(blob):
        size = int.from_bytes(blob[at : at + 4], "big")
        part = blob[at + 4 : at + 4 + size]
        if len(blob) < at + 4 or len(part) != size:
            raise ValueError("cut off")
        yield part
        at += 4 + size


def merged(existing: Sequence[PublicKey], added: Iterable[PublicKey]) -> list[PublicKey]:
    """Both without doubles; a key has all the origins under which it came."""
    origins: dict[tuple[str, str], dict[str, None]] = {}
    for key in (*existing, *added):
        origins.setdefault((key.type, key.data), {}).update(dict.fromkeys(key.origins))
    return [PublicKey(type_, data, tuple(names)) for (type_, data), names in origins.items()]


def without(existing: Sequence[PublicKey], revoked: Sequence[str], doing: str) -> list[PublicKey]:
    """Keys without those of these fingerprints, and without these origins; a key of other origins stays.

    `InvalidInput` if one fits none, or if an origin that several people may have fits several keys.
    """
    by_name = {name: [key for key in existing if name in (key.fingerprint, *key.origins)] for name in revoked}
    if missing := [name for name, keys in by_name.items() if not keys]:
        raise InvalidInput(doing, f"no key is {', '.join(missing)}", f"it has {_listed(existing) or 'none'}")
    for name, keys in by_name.items():
        if len(keys) > 1 and not name.startswith(PERSONAL):
            wrong = f"several keys have the origin {name}, and may be of several people"
            raise InvalidInput(doing, wrong, f"revoke by fingerprint: {_listed(keys)}")
    left = [
        replace(key, origins=tuple(name for name in key.origins if name not in by_name))
        for key in existing
        if key.fingerprint not in by_name
    ]
    return [key for key in left if key.origins]


def _listed(keys: Iterable[PublicKey]) -> str:
    return ", ".join(f"{key.fingerprint} ({key.origin})" for key in keys)


def lost_origin(before: Iterable[PublicKey], after: Iterable[PublicKey]) -> list[PublicKey]:
    """Keys that still may log in although an origin of them was revoked."""
    now = {(key.type, key.data): key for key in after}
    same = [(key, now.get((key.type, key.data))) for key in before]
    return [left for key, left in same if left is not None and not set(key.origins) <= set(left.origins)]


def text(keys: Iterable[PublicKey]) -> str:
    """Content of an authorized_keys file."""
    return "".join(f"{key.line}\n" for key in keys)


def read(content: str) -> Authorized:
    """Keys of an authorized_keys file, and the lines that are no plain key, such as one with options."""
    keys, unknown = list[PublicKey](), dict[int, str]()
    for number, line in enumerate(content.splitlines(), 1):
        fields = line.split()
        if not fields or fields[0].startswith("#"):
            continue
        words = fields[2].split(BETWEEN) if len(fields) > 2 else ["unknown"]
        key = _key(line, tuple(dict.fromkeys(comment(word) for word in words if word)) or ("unknown",))
        if isinstance(key, PublicKey):
            keys.append(key)
        else:
            unknown[number] = key
    return Authorized(merged(keys, []), unknown)
