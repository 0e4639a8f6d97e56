"""Output of a program, up to a limit: a program that prints for ever must not exhaust the machine."""

from __future__ import annotations

import os
import selectors
import subprocess
import time
from typing import IO

MOST_BYTES = 8 * 2**20  # of either stream; a package manager's longest listing has some hundred KiB
_CHUNK = 2**16


class TooMuchOutput(Exception):
    """The program printed more than the limit; what it printed is not whole, and is not given to anybody."""


class Exchange:
    """Feeds a program whose three streams are pipes, and reads its output.

    `to_its_end`: a program that prints too much is read to its end, as it would leave its work half done.
    """

    def __init__(self, process: subprocess.Popen[bytes], *, to_its_end: bool = False) -> None:
        assert process.stdin and process.stdout and process.stderr  # noqa: PT018, S101 - for mypy: pipes were requested
        self._process, self._to_its_end = process, to_its_end
        self._stdin, self._streams = process.stdin, (process.stdout, process.stderr)
        self._texts = {stream.fileno(): bytearray() for stream in self._streams}
        self._unsent = memoryview(b"")
        self._excess = False

    def run(self, feed: bytes, limit_s: float) -> tuple[bytes, bytes]:
        """Return all of its output and error output, once it has ended.

        `TooMuchOutput` if either is larger than the limit, `subprocess.TimeoutExpired` if it takes too long; it may
        then still be running. The pipes are closed in any case.
        """
        end, self._unsent = time.monotonic() + limit_s, memoryview(feed)
        out, err = (self._texts[stream.fileno()] for stream in self._streams)
        with self._stdin, self._streams[0], self._streams[1], selectors.DefaultSelector() as selector:
            for stream in (self._stdin, *self._streams):
                os.set_blocking(stream.fileno(), False)
                event = selectors.EVENT_WRITE if stream is self._stdin else selectors.EVENT_READ
                selector.register(stream, event, stream)
            while selector.get_map():
                ready = selector.select(max(0.0, end - time.monotonic()))
                if not ready:
                    raise subprocess.TimeoutExpired(self._process.args, limit_s)
                for key, _ in ready:
                    if not self._move(key.data):
                        selector.unregister(key.data)
                        key.data.close()
                if self._excess and not self._to_its_end:
                    raise TooMuchOutput
            self._process.wait(max(0.0, end - time.monotonic()))
        if self._excess:
            raise TooMuchOutput
        return bytes(out), bytes(err)

    def _move(self, stream: IO[bytes]) -> bool:
        """Send or receive a part; False if that was all."""
        if stream is self._stdin:
            return self._send()
        text, part = self._texts[stream.fileno()], os.read(stream.fileno(), _CHUNK)
        self._excess = self._excess or len(text) + len(part) > MOST_BYTES
        if not self._excess:
            text += part
        return bool(part)

    def _send(self) -> bool:
        try:
            self._unsent = self._unsent[os.write(self._stdin.fileno(), self._unsent[:_CHUNK]) :]
        except BlockingIOError:
            return True
        except BrokenPipeError:  # nobody reads any more
            return False
        return bool(self._unsent)
