"""Files of /proc and /sys with the kernel's manners: what each reads, and which writes it takes, alters or refuses."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Mapping, Sequence

from tests.rig.numbers import as_list, as_mask, from_list, from_mask


def refuse(number: int) -> OSError:
    """What the kernel answers to a write it does not take."""
    return OSError(number, os.strerror(number))


class Link(str):
    """A symbolic link; the text is its target."""


class Knob:
    """A file that keeps whatever text is written to it."""

    mode = 0o644

    def __init__(self, text: str = "") -> None:
        self.text = text

    def read(self) -> str:
        return f"{self.text}\n" if self.text else ""

    def write(self, text: str) -> None:
        self.text = text.strip()

    def set(self, text: str) -> None:
        """Change it as the machine itself would, from outside of the host."""
        self.write(text)


class ReadOnly(Knob):
    """A file that takes no write, not even from root: EACCES in /sys and /proc/sys, EIO elsewhere in /proc."""

    mode = 0o444

    def write(self, text: str) -> None:
        raise refuse(errno.EIO)

    def set(self, text: str) -> None:
        self.text = text.rstrip("\n")


class State(Knob):
    """A table of the kernel's that a program's system call changes (/proc/swaps); a stand-in writes it instead."""

    mode = 0o444


class Int(Knob):
    """A number in a range; `cap` grants less than was asked for; words stand for numbers, as "performance" for 0."""

    def __init__(
        self,
        value: int,
        low: int = 0,
        high: int = 2**63 - 1,
        cap: int | None = None,
        words: Mapping[str, int] | None = None,
    ) -> None:
        super().__init__(str(value))
        self.low, self.high, self.cap, self.words = low, high, cap, words or {}
        self.rival: Int | None = None

    def write(self, text: str) -> None:
        value = self._number(text.strip())
        if not self.low <= value <= self.high:
            raise refuse(errno.EINVAL)
        before, self.text = self.text, str(value if self.cap is None else min(value, self.cap))
        if self.rival and self.text != before:
            self.rival.text = "0"

    def _number(self, text: str) -> int:
        try:
            return self.words[text] if text in self.words else int(text, 0)
        except ValueError:
            raise refuse(errno.EINVAL) from None


def rivals(first: Int, second: Int) -> tuple[Int, Int]:
    """Two ways to say one thing (vm.dirty_ratio, vm.dirty_bytes): changing one sets the other to zero."""
    first.rival, second.rival = second, first
    return first, second


class Choice(Knob):
    """ "always [madvise] never": one word is written, the brackets move; another word is EINVAL."""

    def __init__(self, text: str) -> None:
        self.words = [word.strip("[]") for word in text.split()]
        super().__init__(next(word.strip("[]") for word in text.split() if word.startswith("[")))

    def read(self) -> str:
        return " ".join(f"[{word}]" if word == self.text else word for word in self.words) + "\n"

    def write(self, text: str) -> None:
        if text.strip() not in self.words:
            raise refuse(errno.EINVAL)
        self.text = text.strip()


class Enum(Knob):
    """One of several words, as scaling_governor; another word is EINVAL."""

    def __init__(self, text: str, of: Sequence[str]) -> None:
        super().__init__(text)
        self.of = of

    def write(self, text: str) -> None:
        if text.strip() not in self.of:
            raise refuse(errno.EINVAL)
        self.text = text.strip()


class View(Knob):
    """A file that shows, and perhaps changes, a state it shares with others."""

    def __init__(self, show: Callable[[], str], change: Callable[[str], None] | None = None) -> None:
        super().__init__()
        self.show, self.change = show, change
        self.mode = 0o644 if change else 0o444

    def read(self) -> str:
        return self.show() + "\n"

    def write(self, text: str) -> None:
        if self.change is None:
            raise refuse(errno.EIO)
        self.change(text.strip())


class Preference:
    """energy_performance_preference under intel_pstate: the governor "performance" pins it, and gives it back after."""

    WORDS = ("default", "performance", "balance_performance", "balance_power", "power")

    def __init__(self, governor: Knob, text: str) -> None:
        self.governor, self.text = governor, text

    def knob(self) -> View:
        return View(self._show, self._change)

    def _pinned(self) -> bool:
        return self.governor.text == "performance"

    def _show(self) -> str:
        return "performance" if self._pinned() else self.text

    def _change(self, text: str) -> None:
        if text not in self.WORDS:
            raise refuse(errno.EINVAL)
        if self._pinned() and text != "performance":
            raise refuse(errno.EBUSY)
        if not self._pinned():
            self.text = text


class Affinity:
    """Where an interrupt may go: one state behind the list, the mask and the effective list of /proc/irq/N."""

    def __init__(self, cpus: Iterable[int], online: Sequence[int], managed: bool) -> None:
        self.cpus, self.online, self.managed = set(cpus), online, managed

    def knobs(self) -> dict[str, Knob]:
        """The files by name."""
        return {
            "smp_affinity_list": View(lambda: as_list(self.cpus), lambda text: self._move(text, from_list)),
            "smp_affinity": View(lambda: self._mask(self.cpus), lambda text: self._move(text, from_mask)),
            "effective_affinity_list": View(lambda: as_list(self._effective())),
            "effective_affinity": View(lambda: self._mask(self._effective())),
            "affinity_hint": ReadOnly(self._mask(())),
        }

    def _mask(self, cpus: Iterable[int]) -> str:
        return as_mask(cpus, max(self.online) + 1)

    def _effective(self) -> set[int]:
        return {min(self.cpus & set(self.online))}

    def _move(self, text: str, parse: Callable[[str], set[int]]) -> None:
        if self.managed:
            raise refuse(errno.EIO)
        try:
            cpus = parse(text)
        except ValueError:
            raise refuse(errno.EINVAL) from None
        if not cpus & set(self.online):
            raise refuse(errno.EINVAL)
        self.cpus = cpus & set(self.online)


class HugePages:
    """Huge pages of one size: the total is spread over the nodes, a node's number is its own, neither beyond a node's
    memory, as the kernel grants what it can."""

    def __init__(self, most_by_node: Mapping[int, int]) -> None:
        self.most = dict(most_by_node)
        self.pages = dict.fromkeys(most_by_node, 0)

    def total(self) -> View:
        return View(lambda: str(sum(self.pages.values())), self._spread)

    def of_node(self, node: int) -> View:
        return View(lambda: str(self.pages[node]), lambda text: self._keep(node, _count(text)))

    def _spread(self, text: str) -> None:
        wanted, left = _count(text), len(self.most)
        for node in sorted(self.most, key=lambda n: self.most[n]):
            self._keep(node, wanted // left)
            wanted -= self.pages[node]
            left -= 1

    def _keep(self, node: int, pages: int) -> None:
        self.pages[node] = min(pages, self.most[node])


def _count(text: str) -> int:
    if not text.isdigit():
        raise refuse(errno.EINVAL)
    return int(text)
