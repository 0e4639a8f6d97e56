"""The kernel's two ways to write a set of processors: "0-3,8" and "0000010f"."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count, groupby


def as_list(numbers: Iterable[int]) -> str:
    """{0, 1, 2, 3, 8} -> "0-3,8"."""
    counter = count()
    runs = [list(run) for _, run in groupby(sorted(set(numbers)), key=lambda n: n - next(counter))]
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)


def from_list(text: str) -> set[int]:
    """The reverse; ValueError where it is none."""
    numbers: set[int] = set()
    for part in text.split(",") if text else []:
        first, _, last = part.partition("-")
        numbers.update(range(int(first), int(last or first) + 1))
    return numbers


def as_mask(numbers: Iterable[int], width: int) -> str:
    """{0, 33} of 64 -> "00000002,00000001"."""
    bits = sum(1 << n for n in set(numbers))
    words = [f"{bits >> shift & 0xFFFFFFFF:08x}" for shift in range(0, width, 32)]
    return ",".join(reversed(words))


def from_mask(text: str) -> set[int]:
    """The reverse; also hwloc's "0x00000002,0x00000001"; ValueError where it is none."""
    bits = int("".join(word.removeprefix("0x").rjust(8, "0") for word in text.split(",")), 16)
    return {n for n in range(bits.bit_length()) if bits >> n & 1}
