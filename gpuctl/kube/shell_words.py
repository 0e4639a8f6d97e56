"""Command lines of shells: whether one reads the start-up files of interactive shells."""

from __future__ import annotations

from collections.abc import Sequence

_BASH = frozenset({"--rcfile", "--init-file", "-o", "+o", "-O", "+O"})
_SH = frozenset({"-o", "+o"})
# Options with a value, by shell.
VALUED = {
    "bash": _BASH,
    "zsh": _SH,
    **dict.fromkeys(("sh", "dash", "ash", "ksh", "ksh93", "lksh", "mksh"), _SH),
    "nu": frozenset({"-e", "--execute", "--config", "--env-config", "-I", "--include-path", "--plugin-config"}),
    "xonsh": frozenset({"--rc", "-D", "--shell-type", "--timings"}),
    "elvish": frozenset({"-rc"}),
    "pwsh": frozenset({"-WorkingDirectory", "-wd", "-SettingsFile"}),
    "tcsh": frozenset[str](),
    "csh": frozenset[str](),
}
ENV_SHELLS = ("sh", "dash", "ash", "ksh", "ksh93", "lksh", "mksh")  # their only such file is that of $ENV
COMMAND = ("--command", "--commands")


def is_interactive(name: str, words: Sequence[str]) -> bool:
    """True for a shell without a command or script, and for one that is interactive beside it (-i).

    `name`: of one of the shells above; `words`: its options and operands.
    """
    left, runs = iter(words), False
    for word in left:
        if word in VALUED[name]:
            next(left, None)
        elif word in ("-", "--"):
            return not runs and next(left, None) is None
        elif word[:1] not in ("-", "+"):
            return False
        elif "i" in _cluster(word) or word == "--interactive":
            return True
        else:
            runs = runs or "c" in _cluster(word) or word.split("=")[0] in COMMAND
            if _cluster(word) and f"-{word[-1]}" in VALUED[name]:  # -lo vi
                next(left, None)
    return not runs


def is_login(words: Sequence[str]) -> bool:
    """True if an option makes it a login shell."""
    return any(word == "--login" or "l" in _cluster(word) for word in words)


def _cluster(word: str) -> str:
    """The letters of options such as -il; empty for a long option."""
    return word[1:] if word[:1] == "-" and word[:2] != "--" else ""
