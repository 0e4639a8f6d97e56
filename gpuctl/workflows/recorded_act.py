"""Record of an act on nodes: written before the act, so that a killed run is in it, and completed afterwards."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from gpuctl.core import run_history
from gpuctl.core.errors import GpuctlError
from gpuctl.core.exit_codes import INTERRUPTED, NOT_DONE
from gpuctl.core.run_history import RunRecord
from gpuctl.hosts.plan import unrecorded

UNFINISHED = "unfinished"
Begin = Callable[[str], None]  # called with the run's name right before its act; nothing is done if it raises


def no_begin(_: str) -> None:
    """Nobody waits for the beginning of an act."""


class Entry:
    """Record of a run that is under way. `hosts`: node -> what was shown, and what became of it."""

    def __init__(self, run: RunRecord) -> None:
        self.run = run
        self.exit_code: int | None = None

    @property
    def name(self) -> str:
        return self.run.name

    def update(self, node: str, **values: Any) -> None:
        """Add values to a node's entry, and write the record."""
        hosts = {**self.run.hosts, node: {**self.run.hosts[node], **values}}
        self.run = replace(self.run, hosts=hosts)
        run_history.save(self.run)


def _new(command: Sequence[str]) -> RunRecord:
    """A record of a name that no other has: names have the second and this process."""
    run = run_history.new(command)
    while run.name in run_history.names():
        time.sleep(0.1)
        run = run_history.new(command)
    return run


@contextmanager
def recorded(command: Sequence[str], hosts: Mapping[str, Mapping[str, Any]]) -> Iterator[Entry]:
    """Record of a run; `GpuctlError` before anything is done if it cannot be written.

    `hosts`: node -> what was shown to the user. Each stays "unfinished" until `Entry.update` gives another status. The
    caller sets `exit_code`.
    """
    started = replace(
        _new(command), hosts={node: {"host": node, "status": UNFINISHED, **v} for node, v in hosts.items()}
    )
    entry = Entry(started)
    try:
        run_history.save(started)
    except OSError as error:
        raise unrecorded(error) from error
    try:
        yield entry
    except BaseException as error:
        entry.exit_code = (
            INTERRUPTED
            if isinstance(error, KeyboardInterrupt)
            else error.exit_code
            if isinstance(error, GpuctlError)
            else NOT_DONE
        )
        raise
    finally:
        run_history.save(replace(entry.run, exit_code=entry.exit_code))
