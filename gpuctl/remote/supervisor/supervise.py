"""Run one program for a connected client, and end it when the connection is lost."""

from __future__ import annotations

import select
import signal
import traceback
from typing import Any

from ansible_collections.gpuctl.fleet.plugins.module_utils.launch import process_tree

from gpuctl.remote.supervisor import detached, protocol
from gpuctl.remote.supervisor.process import Child, StartFailed, environment_entry
from gpuctl.remote.supervisor.protocol import Gone, Reader, Writer

SLICE_S = 0.2


def run(order: dict[str, Any], reader: Reader, writer: Writer) -> None:
    """Run a program until it ends, a stop is requested, or the connection is lost."""
    child, signalled = Child(order), catch_signals()
    writer.send(protocol.STARTED, {"pid": child.pid})
    printing = True
    while not child.is_over():
        if signalled() or reader.should_end():
            child.terminate()
        writer.heartbeat()
        try:
            writer.flush()
        except Gone:
            writer.discard()
            child.terminate()
        inputs = [reader.source] if not child.terminated_at else []
        outputs = [child.out] if printing and writer.has_room else []
        ready = select.select([*inputs, *outputs], [writer.out] if writer.waiting else [], [], SLICE_S)[0]
        if child.out in ready:
            part = child.read()
            printing = bool(part)
            writer.raw(protocol.OUT, part) if part else None
    status, rest = child.finish()
    writer.raw(protocol.OUT, rest)
    writer.send(protocol.ENDED, status)


def catch_signals() -> Any:
    """Catch termination signals from now on; return a function that reports whether one arrived."""
    received: list[int] = []
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, lambda number, _: received.append(number))
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    return lambda: bool(received)


def sweep(order: dict[str, Any], _: Reader, writer: Writer) -> None:
    """End everything that carries a program's mark."""
    left = process_tree.end(environment_entry(order["token"]), order["grace_s"])
    writer.send(protocol.ANSWER, {"left": [str(process["name"]) for process in left]})


HANDLERS = {
    protocol.RUN: run,
    protocol.SWEEP: sweep,
    protocol.START: detached.start,
    protocol.FOLLOW: detached.follow,
    protocol.STOP: detached.stop,
    protocol.INSPECT: detached.inspect,
}


def main() -> int:
    """Carry out one order."""
    reader, writer = Reader(), Writer()
    try:
        order = reader.order()
        HANDLERS[order["what"]](order, reader.nonblocking(), writer)
    except (EOFError, Gone):
        return 0
    except StartFailed as error:
        writer.send(protocol.REFUSED, {"reason": "start", "wrong": str(error)})
    except detached.Refused as error:
        writer.send(protocol.REFUSED, {"reason": error.reason, "wrong": str(error)})
    except Exception:  # noqa: BLE001 - the last word of a program that runs elsewhere
        traceback.print_exc()
        return 1
    finally:
        writer.finish()
    return 0
