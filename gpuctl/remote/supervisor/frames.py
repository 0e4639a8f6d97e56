"""Messages between here and a pod: a kind, a length, and so many bytes. No end of input is needed to know the end."""

from __future__ import annotations

import json
import struct
import zlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

HEAD = struct.Struct(">BI")
MOST = 1 << 26  # bytes of one message: more is no message of ours
MAGIC = b"gpuctl-sync 1\n"

HELLO, LOOK, CHECK, SYNC, ALIVE = range(1, 6)  # each is answered
FILE, DATA, END, LINK, FOLDER, NOTE, DELETE, FORGET, PACK, WHOLE = range(16, 26)  # only trouble is answered
ANSWER, TROUBLE, WORKING = 32, 33, 34


def raw(kind: int, payload: bytes) -> bytes:
    """A message of bytes."""
    return HEAD.pack(kind, len(payload)) + payload


def pack(kind: int, value: Any) -> bytes:
    """A message of plain data. Names that are no UTF-8 pass as JSON's lone surrogates."""
    text = json.dumps(value, separators=(",", ":")).encode()
    return raw(kind, zlib.compress(text, 1) if len(text) > 200 else text)


def whole(head: Any, content: bytes) -> bytes:
    """A message with data and the bytes of a small file."""
    return raw(WHOLE, json.dumps(head, separators=(",", ":")).encode() + b"\n" + content)


def unpack(payload: bytes) -> Any:
    """The data of a message."""
    return json.loads(payload if payload[:1] in b"{[" else zlib.decompress(payload))


class Reader:
    """Messages from a stream. `more` gives the next bytes of it, none at its end."""

    def __init__(self, more: Callable[[], bytes]) -> None:
        self.more = more
        self.buffer = bytearray()

    def next(self) -> tuple[int, bytes]:
        """The next one; EOFError where the stream ends, ValueError where it is none of ours."""
        kind, length = HEAD.unpack(self.take(HEAD.size))
        if length > MOST:
            raise ValueError(f"no message: it says that it has {length} bytes")
        return kind, self.take(length)

    def take(self, count: int) -> bytes:
        """So many bytes."""
        while len(self.buffer) < count:
            part = self.more()
            if not part:
                raise EOFError("the stream ended")
            self.buffer += part
        found = bytes(self.buffer[:count])
        del self.buffer[:count]
        return found
