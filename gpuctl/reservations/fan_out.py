"""Work on nodes at the same time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from gpuctl.reservations.agent import NotObeyed, NotReady

MOST_NODES = 32  # that are visited at the same time
Built = TypeVar("Built")


def on_all(names: Sequence[str], work: Callable[[str], Built]) -> dict[str, Built | Exception]:
    """Results of work on nodes at the same time; an exception is the reason of a node that gave none."""
    if not names:
        return {}
    with ThreadPoolExecutor(min(MOST_NODES, len(names))) as pool:
        return dict(zip(names, pool.map(lambda name: attempt(lambda: work(name)), names), strict=True))


def attempt(work: Callable[[], Built]) -> Built | Exception:
    """The result of work on a node; the exception if it does not answer or refuses."""
    try:
        return work()
    except (OSError, NotObeyed, NotReady) as error:
        return error
