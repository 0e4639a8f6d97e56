"""One launch again and again, for a calibration."""

from __future__ import annotations

from collections.abc import Callable

from gpuctl.nccl.model import Ended


def measure(
    times: int,
    once: Callable[[int], Ended],
    wrong: Callable[[Ended], list[str]],
    broken_off: Callable[[], bool],
    into: list[Ended] | None = None,
) -> list[Ended]:
    """So many runs, one after the other; fewer where one is wrong, as no baseline comes of them, or at a Ctrl-C.

    `once` makes one run, given its number from 1 on; `wrong` says why none comes of it. `into`: the list to answer
    with; where a run raises, those before are in it.
    """
    ended = [] if into is None else into
    for number in range(1, times + 1):
        if broken_off():
            break
        ended.append(once(number))
        if wrong(ended[-1]):
            break
    return ended
