"""Messages between this machine and a pod: kind, length, payload. The end of a message never depends on the end of
input.
"""

from __future__ import annotations

import json
import struct
import zlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

HEAD = struct.Struct(">BI")
MOST = 1 << 26  # bytes of one message: a longer one is not ours
MAGIC = b"gpuctl-sync 1\n"

HELLO, LOOK, CHECK, SYNC, ALIVE = range(1, 6)  # requests with an answer
FILE, DATA, END, LINK, FOLDER, NOTE, DELETE, FORGET, PACK, WHOLE = range(16, 26)  # only errors are answered
ANSWER, TROUBLE, WORKING = 32, 33, 34


def raw(kind: int, payload: bytes) -> bytes:
    """Encode a message with a bytes payload."""
    return HEAD.pack(kind, len(payload)) + payload


def pack(kind: int, value: Any) -> bytes:
    """Encode a message with a JSON payload. File names that are not UTF-8 pass as JSON lone surrogates."""
    text = json.dumps(value, separators=(",", ":")).encode()
    return raw(kind, zlib.compress(text, 1) if len(text) > 200 else text)


def whole(head: Any, content: bytes) -> bytes:
    """Encode a message with JSON metadata and the content of a small file."""
    return raw(WHOLE, json.dumps(head, separators=(",", ":")).encode() + b"\n" + content)


def unpack(payload: bytes) -> Any:
    """Decode a JSON payload."""
    return json.loads(text_of(payload))


def text_of(payload: bytes) -> bytes:
    """Return the JSON text of a payload; ValueError if it is damaged, or larger than any of ours."""
    return payload if payload[:1] in b"{[" else inflated(payload)


def inflated(data: bytes) -> bytes:
    """Decompress at most MOST bytes; ValueError for anything else: a few kilobytes may stand for gigabytes."""
    stream = zlib.decompressobj()
    try:
        text = stream.decompress(data, MOST)
    except zlib.error as error:
        raise ValueError(f"it cannot be decompressed: {error}") from error
    if not stream.eof:
        raise ValueError(f"it is incomplete, or larger than {MOST} bytes")
    return text


class Reader:
    """Read messages from a stream. `more` returns its next bytes, empty at the end."""

    def __init__(self, more: Callable[[], bytes]) -> None:
        self.more = more
        self.buffer = bytearray()

    def next(self) -> tuple[int, bytes]:
        """Return the next message; EOFError at the end of the stream, ValueError if it is not one of ours."""
        kind, length = HEAD.unpack(self.take(HEAD.size))
        if length > MOST:
            raise ValueError(f"not a message: it claims {length} bytes")
        return kind, self.take(length)

    def take(self, count: int) -> bytes:
        """Return exactly `count` bytes."""
        while len(self.buffer) < count:
            part = self.more()
            if not part:
                raise EOFError("the stream ended")
            self.buffer += part
        data = bytes(self.buffer[:count])
        del self.buffer[:count]
        return data
