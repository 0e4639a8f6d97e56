"""The keys that a configuration binds, compared with the cheatsheet."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence

from gpuctl.tmux.versions.config_parser import Mistake, Unit

Binding = tuple[str, Unit]  # the file and its command
Key = tuple[str, str]  # table, key
ALONE = "WITHOUT PREFIX"  # the heading above the keys of the root table
ARROWS = ("Left", "Down", "Up", "Right")


def bound(fed: Sequence[Binding]) -> dict[Key, Binding]:
    """Map table and key to the command that binds it, without keys that are unbound again."""
    bindings: dict[Key, Binding] = {}
    for name, unit in fed:
        if unit.tokens[0] not in ("bind", "bind-key", "unbind", "unbind-key"):
            continue
        table, all_keys, arguments = _flags(unit.tokens[1:])
        if unit.tokens[0].startswith("bind") and arguments:
            bindings[(table, arguments[0])] = (name, unit)
        elif all_keys:
            bindings = {key: binding for key, binding in bindings.items() if key[0] != table}
        elif arguments:
            bindings.pop((table, arguments[0]), None)
    return bindings


def _flags(arguments: Sequence[str]) -> tuple[str, bool, list[str]]:
    """Return the table, True if the command is for all its keys, and the arguments from the key on."""
    table, all_keys, remaining = "prefix", False, [_plain(word) for word in arguments]
    while remaining and re.fullmatch(r"-[a-zA-Z]+", remaining[0]):
        flag = remaining.pop(0)
        all_keys = all_keys or "a" in flag
        table = "root" if "n" in flag else table
        if flag[-1] in "TN" and remaining:
            value = remaining.pop(0)
            table = value if flag[-1] == "T" else table
    return table, all_keys, remaining


def _plain(word: str) -> str:
    """Remove a word's quotes."""
    if len(word) > 1 and word[0] == word[-1] and word[0] in "'\"":
        word = word[1:-1]
    return re.sub(r"\\(.)", r"\1", word)


def undocumented(sheet: str, bindings: Mapping[Key, Binding], server_keys: Collection[Key]) -> list[Mistake]:
    """List cheatsheet keys that the server (`server_keys`) lacks, and bound keys that the cheatsheet lacks."""
    documented = {key: line for line, key in _documented(sheet)}
    has = {(table, _unquoted(key)) for table, key in server_keys}
    mistakes = [
        Mistake("cheatsheet.txt", line, f"it lists the key {key} (table {table}), which is not bound")
        for (table, key), line in documented.items()
        if (table, key) not in has
    ]
    for (table, key), (name, unit) in bindings.items():
        if name == "keybindings.conf" and table in ("prefix", "root") and (table, key) not in documented:
            mistakes.append(Mistake(name, unit.line, f"cheatsheet.txt does not list the key {key} (table {table})"))
    return mistakes


def _documented(sheet: str) -> Iterator[tuple[int, Key]]:
    """Yield line and key of a cheatsheet: headings start at the margin, keys are indented."""
    table = "prefix"
    for number, line in enumerate(sheet.splitlines(), 1):
        if line[:1].strip():
            table = "root" if line.strip().upper() == ALONE else "prefix"
        elif line.strip():
            for word in re.split(r" {2,}", line.strip())[0].split():
                yield from ((number, (table, key)) for key in _keys(word))


def _keys(word: str) -> Sequence[str]:
    """Expand 0-9 and M-0-9 to ten keys, `arrows` to four."""
    numbers = re.fullmatch(r"(.*?)(\d)-(\d)", word)
    if numbers:
        return [f"{numbers[1]}{number}" for number in range(int(numbers[2]), int(numbers[3]) + 1)]
    return ARROWS if word == "arrows" else (word,)


def _unquoted(key: str) -> str:
    """Return a key of list-keys without backslash or quotes."""
    return _plain(key)
