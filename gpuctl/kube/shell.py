"""Start the user's shell, or a program, with a private kubeconfig and the wrappers of kubectl, oc and helm."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from gpuctl.core import settings
from gpuctl.core.errors import InvalidInput
from gpuctl.core.paths import cache_dir, config_dir, private, write_atomically
from gpuctl.edges import programs
from gpuctl.edges.kube import config, kubectl
from gpuctl.kube import private_kubeconfig, prompt, shell_options, wrappers

FOLDER = Path(__file__).parent
SHELLS = ("bash", "zsh")
INTERACTIVE = re.compile(r"-[il]+|--login")


@dataclass(frozen=True)
class Shell:
    """A shell's name and program."""

    name: str
    program: str


def which(requested: str, login: str) -> Shell:
    """Return the requested shell, else the login shell if it is bash or zsh, else the first installed one."""
    for candidate in (requested, login if Path(login).name in SHELLS else "", *SHELLS):
        name = Path(candidate).name
        if candidate and name not in SHELLS:
            raise InvalidInput(f"start {candidate}", "the smart shell supports bash and zsh")
        if candidate and programs.installed(candidate):
            return Shell(name, candidate)
        if candidate and candidate == requested:
            raise InvalidInput(f"start {candidate}", "it is not installed")
    raise InvalidInput("start a smart shell", "neither bash nor zsh is installed")


def start(requested: str, report: Callable[[str], None]) -> NoReturn:
    """Replace this process with the shell; its process id marks the private kubeconfig as in use.

    `report` receives notices about additions kept from shells that ended without cleaning up.
    """
    shell = _startable(requested)
    _report_saved(report)
    _start(shell, private_kubeconfig.make(config.files(), os.getpid(), os.uname().nodename, *_before()))


def _startable(requested: str) -> Shell:
    """The shell to start; InvalidInput if it cannot be started here."""
    shell = which(requested, os.environ.get("SHELL", ""))
    if not sys.stdin.isatty():
        raise InvalidInput("start a smart shell", "it needs a terminal", "in scripts use kubectl itself")
    if shell.name == "zsh":
        _check_start_up_files(shell)
    return shell


def _report_saved(report: Callable[[str], None]) -> None:
    """Remove the copies of ended shells, and report the additions that were saved from them."""
    for entries in private_kubeconfig.remove_stale(os.uname().nodename):
        report(str(entries))


def _start(shell: Shell, copy: Path, *, login: bool = False) -> NoReturn:
    """Replace this process with the shell. `login`: with the start-up files of a login shell, too."""
    prompt.write(Path(f"{copy}.prompt"), [copy], settings.load())
    write_atomically(Path(f"{copy}.commands"), "")
    _set_pane_option("@gpuctl_kubeconfig", str(copy))
    _set_pane_option("@gpuctl_history", f"{copy}.commands")
    as_login = {"GPUCTL_KUBE_LOGIN": "yes"} if login else {}
    kubectl.become(_argv(shell), {**os.environ, **_variables(copy), **_shell_variables(shell), **as_login})


def _check_start_up_files(zsh: Shell) -> None:
    """InvalidInput if the system's zshenv, which zsh always reads first, makes it read other files than gpuctl's."""
    probe = ["env", f"ZDOTDIR={os.devnull}", zsh.program, "-f", "-c", 'print -r -- "$ZDOTDIR"']
    lines = (kubectl.output_of(probe) or "").splitlines()
    if lines[-1:] != [os.devnull]:
        wrong = "the system's zshenv sets ZDOTDIR, so that zsh would not read the start-up files of gpuctl"
        hint = "set ZDOTDIR in ~/.zshenv instead, or start bash: `gpuctl kube shell --shell bash`"
        raise InvalidInput("start zsh", wrong, hint)


def run(argv: Sequence[str], report: Callable[[str], None]) -> NoReturn:
    """Replace this process with a program; its process id marks the private kubeconfig as in use.

    If the user's kubeconfig cannot be read, the program has an empty one, and `report` receives the error. bash and zsh
    become smart shells, and fish sets its kubeconfig last: their start-up files may export another one. Other
    interactive shells of a pane with a declared context read no such file, or are refused.
    """
    if _is_smart(argv):
        shell = _startable(argv[0])
        _report_saved(report)
        _start(shell, _copy_or_empty(argv[0], report), login=shell_options.is_login(argv[1:]))
    without_files = _without_start_up_files(argv)
    copy = _copy_or_empty(argv[0], report)
    context, _ = _before()
    if context and config.current(copy) is None:
        report(f"gpuctl: the kubeconfig has no context {context}: {argv[0]} starts without a context")
    _set_pane_option("@gpuctl_kubeconfig", str(copy))
    kubectl.become(_with_kubeconfig_last(argv, copy), {**os.environ, **_variables(copy), **without_files})


def _copy_or_empty(program: str, report: Callable[[str], None]) -> Path:
    """Make the private kubeconfig of a program: an empty one, and a report, if the user's cannot be read."""
    host = os.uname().nodename
    try:
        return private_kubeconfig.make(config.files(), os.getpid(), host, *_before())
    except InvalidInput as error:
        report(f"{error}; {program} starts without a context")
        return private_kubeconfig.make([], os.getpid(), host)


def _is_smart(argv: Sequence[str]) -> bool:
    """True for bash or zsh on a terminal, without a script or command."""
    is_shell = Path(argv[0]).name in SHELLS and all(INTERACTIVE.fullmatch(word) for word in argv[1:])
    return is_shell and sys.stdin.isatty()


def _without_start_up_files(argv: Sequence[str]) -> dict[str, str]:
    """The variables of a shell that reads no start-up file; InvalidInput for one that would read some.

    Only for an interactive shell of a pane with a declared context: such a file may export another kubeconfig.
    """
    name, (context, _) = Path(argv[0]).name, _before()
    is_shell = bool(context) and name in shell_options.VALUED and sys.stdin.isatty()
    if not is_shell or not shell_options.is_interactive(name, argv[1:]):
        return {}
    if name in shell_options.ENV_SHELLS and not shell_options.is_login(argv[1:]):
        return {"ENV": os.devnull}
    wrong = f"its start-up files could select another cluster than the pane's context {context}"
    raise InvalidInput(f"start {shlex.join(argv)}", wrong, "use bash, zsh or fish, without further options")


def _with_kubeconfig_last(argv: Sequence[str], copy: Path) -> Sequence[str]:
    if Path(argv[0]).name != "fish":
        return argv
    return [argv[0], "-C", f"set -gx KUBECONFIG {shlex.quote(str(copy))}", *argv[1:]]


def _set_pane_option(name: str, value: str) -> None:
    if pane := os.environ.get("TMUX_PANE"):
        kubectl.tmux("set-option", "-p", "-t", pane, name, value)


def remake(copy: Path) -> None:
    """Rebuild a running shell's private kubeconfig from the files that its start-up files put in KUBECONFIG."""
    named = private_kubeconfig.NAMED.fullmatch(copy.name)
    if named is None or not private_kubeconfig.is_private([copy]):
        raise InvalidInput(f"make {copy} again", "it is not the private kubeconfig of a smart shell")
    private_kubeconfig.make(config.files(), int(named["pid"]), named["host"], *_before())
    prompt.write(Path(f"{copy}.prompt"), [copy], settings.load())


def leave(copy: Path) -> private_kubeconfig.SavedEntries | None:
    """Keep the additions to an ending shell's private kubeconfig; None if there are none."""
    if not private_kubeconfig.is_private([copy]):
        raise InvalidInput(f"look at {copy}", "it is not the private kubeconfig of a smart shell")
    return private_kubeconfig.keep_added(copy)


def _before() -> tuple[str, str]:
    """Return the context and namespace of a restored pane; the shell's start-up file unsets the variables."""
    return os.environ.get("GPUCTL_KUBE_CONTEXT", ""), os.environ.get("GPUCTL_KUBE_NAMESPACE", "")


def _variables(copy: Path) -> dict[str, str]:
    """Return the variables of any program with a private kubeconfig."""
    path = os.environ.get("PATH", os.defpath)
    return {
        "GPUCTL_KUBECONFIG": str(copy),
        "GPUCTL_KUBE_FROM": os.environ.get("KUBECONFIG", ""),
        "GPUCTL_KUBE_WRAPPERS": str(wrappers.folder()),
        "GPUCTL_PROGRAM": os.environ.get("GPUCTL_PROGRAM") or str(Path(sys.argv[0]).absolute()),
        "KUBECONFIG": str(copy),
        "PATH": wrappers.place(path),
        **wrappers.bash_functions(path),
    }


def _shell_variables(shell: Shell) -> dict[str, str]:
    variables = {
        "GPUCTL_KUBE_FOLDER": str(FOLDER),
        "GPUCTL_KUBE_SETTINGS": str(config_dir() / "settings.yml"),
        "GPUCTL_KUBE_COMPLETION": str(completion(shell.name)),
    }
    if shell.name == "zsh":  # it has no --rcfile: it reads this folder's files, which continue with the user's
        theirs = os.environ.get("ZDOTDIR", "")
        variables |= {"ZDOTDIR": str(FOLDER / "zsh"), "GPUCTL_ZDOTDIR": theirs}
    return variables


def _argv(shell: Shell) -> list[str]:
    return [shell.program, "--rcfile", str(FOLDER / "bash.sh"), "-i"] if shell.name == "bash" else [shell.program, "-i"]


def completion(shell: str) -> Path:
    """Return the file with kubectl's completion, updated when kubectl is newer; absent without kubectl."""
    path = cache_dir() / "kube" / f"completion.{shell}"
    program = wrappers.wrapped("kubectl")
    if program is None:
        return path
    if not path.is_file() or path.stat().st_mtime < program.resolve().stat().st_mtime:
        text = kubectl.output_of(["kubectl", "completion", shell])
        if text:
            private(path.parent)
            write_atomically(path, text)
    return path
