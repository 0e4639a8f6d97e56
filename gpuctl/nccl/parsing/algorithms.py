"""Algorithms in NCCL's output: those the environment forced, and those NCCL chose."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

# The one list of them, in the order of NCCL's numbers.
ALGORITHMS = ("Tree", "Ring", "CollNetDirect", "CollNetChain", "NVLS", "NVLSTree", "PAT")
_BY_NAME = {name.lower(): name for name in ALGORITHMS}
_FORCED = re.compile(r"^NCCL_ALGO set by environment to (\S+)")
# Of NCCL 2.4, which had no NCCL_ALGO: no tree at any size.
_NO_TREE = re.compile(r"^NCCL_TREE_THRESHOLD set by environment to 0\.?\s*$")
VARIABLES = ("NCCL_ALGO", "NCCL_TREE_THRESHOLD")  # what `forced` reads begins with one of these
_TUNED = re.compile(r"^\w+: \d+ Bytes -> Algo (\w+)")


def forced(text: str) -> Iterator[str]:
    """Algorithms a message says are forced: Ring, ^NVLS (all but it), allreduce:Ring (one collective)."""
    if _NO_TREE.match(text):
        yield "Ring"
    match = _FORCED.match(text)
    if match:
        yield from requested(match[1].rstrip("."))


def requested(value: str) -> Iterator[str]:
    """Algorithms in a value of NCCL_ALGO, formatted as in `forced`; unknown words stay as they are."""
    for part in value.split(";"):
        function, colon, names = part.rpartition(":")
        ban = "^" if names.startswith("^") else ""
        for word in names.removeprefix("^").split(","):
            if word:
                yield f"{function.lower()}{colon}{ban}{algorithm(word) or word}"


def of_collective(names: Iterable[str], collective: str) -> list[str]:
    """Entries that apply to one collective; each entry may name one ("allreduce:Ring")."""
    name_in_nccl = collective.replace("_", "")
    split = [name.rpartition(":") for name in names]
    return [name for function, _, name in split if function in ("", name_in_nccl)]


def unknown(value: str) -> list[str]:
    """Words in a value of NCCL_ALGO that are not algorithms."""
    names = [name.rpartition(":")[2].removeprefix("^") for name in requested(value)]
    return [name for name in names if name not in ALGORITHMS] if names else [value]


def chosen(text: str) -> str | None:
    """Algorithm that NCCL reports using for a message size."""
    match = _TUNED.match(text)
    return algorithm(match[1]) if match else None


def algorithm(word: str) -> str | None:
    """NCCL's name of an algorithm given as a number or in any spelling; None for any other word."""
    if word.isdecimal():
        return ALGORITHMS[int(word)] if len(word) == 1 and int(word) < len(ALGORITHMS) else None
    return _BY_NAME.get(word.replace("_", "").lower())
