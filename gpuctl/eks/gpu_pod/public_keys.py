"""Public ssh keys: each line is rebuilt from its type and its key, so that no option of authorized_keys passes."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

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
GITHUB_USER = re.compile(r"[A-Za-z0-9](?:-?[A-Za-z0-9]){0,38}")  # GitHub's rule for names


@dataclass(frozen=True)
class PublicKey:
    """A key that may log in. `data`: base64. `origin`: "agent", "file:NAME" or "github:USER"; its comment."""

    type: str
    data: str
    origin: str

    @property
    def line(self) -> str:
        return f"{self.type} {self.data} {self.origin}"

    @property
    def fingerprint(self) -> str:
        """Fingerprint as `ssh-keygen -l` prints it."""
        digest = hashlib.sha256(base64.b64decode(self.data)).digest()
        return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


def parse(text: str, origin: str, doing: str) -> list[PublicKey]:
    """Keys of a text with one a line; `InvalidInput` names each line that is none, and never shows its content."""
    if PRIVATE in text:
        raise InvalidInput(doing, "it holds a private key", "name the public half: the file that ends in .pub")
    keys, wrong = [], []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        key = _key(line, comment(origin))
        if isinstance(key, str):
            wrong.append(f"line {number}: {key}")
        else:
            keys.append(key)
    if wrong:
        raise InvalidInput(doing, "; ".join(wrong[:5]), "a line is: TYPE BASE64 COMMENT, as ssh-keygen writes *.pub")
    return keys


def comment(origin: str) -> str:
    """An origin as a comment of one word."""
    return NO_COMMENT.sub("_", origin)[:100]


def _key(line: str, origin: str) -> PublicKey | str:
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
    return PublicKey(fields[0], base64.b64encode(blob).decode(), origin)


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
    """Both without doubles; a key keeps the origin under which it came first."""
    by_data = {(key.type, key.data): key for key in reversed([*existing, *added])}
    order = dict.fromkeys((key.type, key.data) for key in [*existing, *added])
    return [by_data[name] for name in order]


def without(existing: Sequence[PublicKey], revoked: Sequence[str], doing: str) -> list[PublicKey]:
    """Keys without those of these fingerprints or origins; `InvalidInput` if one fits none."""
    missing = [name for name in revoked if not any(name in (key.fingerprint, key.origin) for key in existing)]
    if missing:
        listed = ", ".join(f"{key.fingerprint} ({key.origin})" for key in existing) or "none"
        raise InvalidInput(doing, f"no key is {', '.join(missing)}", f"it has {listed}")
    return [key for key in existing if not {key.fingerprint, key.origin} & set(revoked)]


def text(keys: Iterable[PublicKey]) -> str:
    """Content of an authorized_keys file."""
    return "".join(f"{key.line}\n" for key in keys)


def read(content: str) -> list[PublicKey]:
    """Keys of a file that `text` made; a line that it did not make is left out, and so is revoked."""
    keys = []
    for line in content.splitlines():
        fields = line.split()
        key = _key(line, fields[2] if len(fields) > 2 else "unknown") if fields else ""
        keys += [key] if isinstance(key, PublicKey) else []
    return keys
