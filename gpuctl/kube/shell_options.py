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


def is_interactive(name: str, arguments: Sequence[str]) -> bool:
    """True for a shell without a command or script, and for one that is interactive beside it (-i).

    `name`: of one of the shells above; `arguments`: its options and operands.
    """
    left, runs = iter(arguments), False
    for argument in left:
        if argument in VALUED[name]:
            next(left, None)
        elif argument in ("-", "--"):
            return not runs and next(left, None) is None
        elif argument[:1] not in ("-", "+"):
            return False
        elif "i" in _cluster(argument) or argument == "--interactive":
            return True
        else:
            runs = runs or "c" in _cluster(argument) or argument.split("=")[0] in COMMAND
            if _cluster(argument) and f"-{argument[-1]}" in VALUED[name]:  # -lo vi
                next(left, None)
    return not runs


def is_login(arguments: Sequence[str]) -> bool:
    """True if an option makes it a login shell."""
    return any(argument == "--login" or "l" in _cluster(argument) for argument in arguments)


def _cluster(argument: str) -> str:
    """The letters of options such as -il; empty for a long option."""
    return argument[1:] if argument[:1] == "-" and argument[:2] != "--" else ""
