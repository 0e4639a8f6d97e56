"""A debugger's side of the Debug Adapter Protocol, as far as a breakpoint takes it.

https://microsoft.github.io/debug-adapter-protocol/specification
"""

from __future__ import annotations

import contextlib
import json
import socket
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.integration.cluster.sync.watching import until


class Debugger:
    """Attached to the program behind a local port, as soon as that can be."""

    def __init__(self, port: int, here: Path, there: str) -> None:
        self.roots = {"localRoot": str(here), "remoteRoot": there}
        self.port, self.number, self.attached = port, 0, 0
        self.told: list[dict[str, Any]] = []
        until(self._attaches)

    def __enter__(self) -> Debugger:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.stream.close()
        self.socket.close()

    def _attaches(self) -> bool:
        """True once it is attached. A forward closes the connection where nobody listens yet, and a program that is
        being ended hangs up after its first answer.
        """
        self.socket = socket.socket()
        self.told.clear()
        try:
            self.socket.settimeout(30)
            self.socket.connect(("127.0.0.1", self.port))
            self.stream = self.socket.makefile("rwb")
            self.ask("initialize", {"adapterID": "test", "pathFormat": "path"})
            self.attached = self._send("attach", {"pathMappings": [self.roots], "justMyCode": True})
            self._until(lambda told: told.get("event") == "initialized")
        except (OSError, EOFError):
            self.socket.close()
            return False
        return True

    def stops_at(self, path: Path, line: int) -> dict[str, Any]:
        """Set a breakpoint: the frame in which the program stops."""
        self.ask("setBreakpoints", {"source": {"path": str(path)}, "breakpoints": [{"line": line}]})
        self.ask("configurationDone", {})
        self._until(lambda told: told.get("request_seq") == self.attached)
        stopped = self._until(lambda told: told.get("event") == "stopped")
        assert stopped["body"]["reason"] == "breakpoint"
        frames = self.ask("stackTrace", {"threadId": stopped["body"]["threadId"]})["body"]["stackFrames"]
        found: dict[str, Any] = frames[0]
        return found

    def value(self, name: str, frame: dict[str, Any]) -> str:
        """What a variable holds there."""
        return str(self.ask("evaluate", {"expression": name, "frameId": frame["id"]})["body"]["result"])

    def ask(self, command: str, arguments: dict[str, Any]) -> dict[str, Any]:
        number = self._send(command, arguments)
        answer = self._until(lambda told: told.get("request_seq") == number)
        assert answer["success"], answer
        return answer

    def _send(self, command: str, arguments: dict[str, Any]) -> int:
        self.number += 1
        told = {"seq": self.number, "type": "request", "command": command, "arguments": arguments}
        body = json.dumps(told).encode()
        self.stream.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        self.stream.flush()
        return self.number

    def _until(self, wanted: Any) -> dict[str, Any]:
        """The first message like that, of those heard and to come."""
        while True:
            with contextlib.suppress(StopIteration):
                found = next(each for each in self.told if wanted(each))
                self.told.remove(found)
                return found
            self.told.append(self._next())

    def _next(self) -> dict[str, Any]:
        length = 0
        while (line := self.stream.readline()) != b"\r\n":
            if not line:
                raise EOFError("it hung up")
            name, _, value = line.partition(b":")
            length = int(value) if name.lower() == b"content-length" else length
        found: dict[str, Any] = json.loads(self.stream.read(length))
        return found
