"""Runs one program for somebody who listens, and ends it when nobody does any more."""

from __future__ import annotations

import select
import signal
import traceback
from typing import Any

from ansible_collections.gpuctl.fleet.plugins.module_utils.launch import process_tree

from gpuctl.remote.supervisor import detached, protocol
from gpuctl.remote.supervisor.process import Child, NoStart, variable
from gpuctl.remote.supervisor.protocol import Ear, Gone, Voice

SLICE_S = 0.2


def run(order: dict[str, Any], ear: Ear, voice: Voice) -> None:
    """A program to its end, or until we are told to end it, or the connection is gone."""
    child, ends = Child(order), ends_by_signal()
    voice.say(protocol.STARTED, {"pid": child.pid})
    printing = True
    while not child.is_over():
        if ends() or ear.told_to_end():
            child.tell_to_end()
        voice.beat()
        try:
            voice.pass_on()
        except Gone:
            voice.hush()
            child.tell_to_end()
        listened = [ear.source] if not child.told_s else []
        wanted = [child.out] if printing and voice.has_room else []
        ready = select.select([*listened, *wanted], [voice.out] if voice.waiting else [], [], SLICE_S)[0]
        if child.out in ready:
            part = child.read()
            printing = bool(part)
            voice.raw(protocol.OUT, part) if part else None
    told, rest = child.finish()
    voice.raw(protocol.OUT, rest)
    voice.say(protocol.ENDED, told)


def ends_by_signal() -> Any:
    """Whether somebody sent us a signal that ends programs; from now on none does."""
    told: list[int] = []
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, lambda number, _: told.append(number))
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    return lambda: bool(told)


def swept(order: dict[str, Any], _: Ear, voice: Voice) -> None:
    """End everything that has a program's mark."""
    left = process_tree.end(variable(order["token"]), order["grace_s"])
    voice.say(protocol.ANSWER, {"left": [str(each["name"]) for each in left]})


DOES = {
    protocol.RUN: run,
    protocol.SWEEP: swept,
    protocol.KEEP: detached.keep,
    protocol.FOLLOW: detached.follow,
    protocol.STOP: detached.stop,
    protocol.LOOK: detached.look,
}


def main() -> int:
    """One order, and what comes of it."""
    ear, voice = Ear(), Voice()
    try:
        order = ear.order()
        DOES[order["what"]](order, ear.quietly(), voice)
    except (EOFError, Gone):
        return 0
    except NoStart as error:
        voice.say(protocol.REFUSED, {"word": "start", "wrong": str(error)})
    except detached.Refused as error:
        voice.say(protocol.REFUSED, {"word": error.word, "wrong": str(error)})
    except Exception:  # noqa: BLE001 - the last word of a program that runs elsewhere
        traceback.print_exc()
        return 1
    finally:
        voice.finish()
    return 0
