"""Wait for AWS: each line of progress names what is awaited, for how long, and how long it usually takes."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from gpuctl.core.errors import GpuctlError

Value = TypeVar("Value")


class TimeUp(GpuctlError):
    """The limit of a wait has passed."""


EVERY_S, LINE_EVERY_S = 10.0, 60.0


@dataclass(frozen=True)
class Wait:
    """Something that takes long. `usual`, `limit_s`: how long it takes, and the most that is waited."""

    doing: str
    usual: str
    limit_s: float


CLUSTER_UP = Wait("the control plane", "8 to 15 min", 45 * 60)
CLUSTER_DOWN = Wait("the end of the control plane", "2 to 10 min", 45 * 60)
NAT_UP = Wait("the NAT gateway", "1 to 3 min", 15 * 60)
NAT_DOWN = Wait("the end of the NAT gateway", "1 to 3 min", 15 * 60)
GROUPS_UP = Wait("nodes of the groups", "2 to 10 min, longer for large types", 60 * 60)
GROUPS_DOWN = Wait("the end of the node groups", "3 to 15 min, longer for large types", 60 * 60)
ADDONS_UP = Wait("addons", "1 to 3 min", 20 * 60)
ADDONS_DOWN = Wait("the end of failed addons", "1 min", 20 * 60)
ROLE_KNOWN = Wait("IAM to make the new role known", "10 s", 120)
LISTED = Wait("AWS to list the subnets", "10 s", 60)
FREED = Wait("interfaces to let go", "1 to 5 min", 15 * 60)
BALANCERS_DOWN = Wait("the end of load balancers", "1 min", 10 * 60)
FARGATE_DOWN = Wait("the end of a Fargate profile", "1 to 5 min", 20 * 60)


@dataclass
class Waiter:
    """Polls, and prints progress. `sleep`, `clock`: replaced in tests."""

    progress: Callable[[str], None]
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic
    every_s: float = field(default_factory=lambda: EVERY_S)
    _printed: set[str] = field(default_factory=set)

    def until(self, wait: Wait, poll: Callable[[], tuple[Value | None, str]]) -> Value:
        """Poll until there is a value; the text is its state until then. GpuctlError when the limit has passed."""
        start = printed = self.clock()
        state = first = None
        while True:
            value, state = poll()
            if value is not None:
                if first is not None:
                    self.progress(f"{wait.doing}: done after {minutes(self.clock() - start)}")
                return value
            passed = self.clock() - start
            if passed > wait.limit_s:
                wrong = f"after {minutes(passed)} it is still {state}"
                raise TimeUp(f"wait for {wait.doing}", wrong, "run the same command again: it goes on from here")
            if first is None:
                self.progress(f"waiting for {wait.doing} (usually {wait.usual}): {state}")
                first = state
            elif self.clock() - printed >= LINE_EVERY_S:
                self.progress(f"waiting for {wait.doing}, {minutes(passed)} so far (usually {wait.usual}): {state}")
                printed = self.clock()
            self.sleep(self.every_s)

    def once(self, line: str) -> None:
        """Print a line that was not printed yet."""
        if line not in self._printed:
            self._printed.add(line)
            self.progress(line)


def minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
