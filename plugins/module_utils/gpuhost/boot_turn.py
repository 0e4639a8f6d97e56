"""The turn of a boot program: it sets values while no run is at work, else it comes again later."""

from __future__ import annotations

import sys
from collections.abc import Callable

from .host import Host
from .lock import NoLock, hold_off_runs

TIMER = "/etc/systemd/system/{}.timer"


def take(host: Host, program: str, config: str, apply_all: Callable[[Host], list[str]]) -> int:
    """Apply what `config` asks for; return 1 if any value could not be set, with the reasons on standard error.

    A run may be undoing the very settings that `apply_all` would put back: its timer repeats the program then.
    """
    if not host.exists(config):
        return 0
    try:
        with hold_off_runs(host) as may_start:
            failed = apply_all(host) if may_start else _postpone(host, program)
    except NoLock as error:  # a full /run must not leave the host without its settings
        print(f"without the lock of runs: {error}", file=sys.stderr)
        failed = apply_all(host)
    for wrong in failed:
        print(wrong, file=sys.stderr)
    return 1 if failed else 0


def _postpone(host: Host, program: str) -> list[str]:
    print("a gpuctl run is at work on this host: trying again when the timer ends", file=sys.stderr)
    done = host.run("systemctl", "--no-block", "restart", "--", f"{program}.timer", changes=True)
    # The run may have removed the timer together with all that the program would set.
    is_wrong = not done.ok and host.exists(TIMER.format(program))
    return [f"{program}.timer: {done.last_line}"] if is_wrong else []
