"""kubectl and what goes with it at a prompt: fzf, the pane's tmux, a shell. What gpuctl.kube starts is started here."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.edges.kube import config
from gpuctl.edges.terminal import as_it_was

ANSWERS = "`kubectl cluster-info` shows whether the cluster answers"
CHOSE_NOTHING = (1, 130)  # fzf: no match, Escape or Ctrl-C


def need(program: str) -> str:
    """Where a program is; `InvalidInput` where it is not installed."""
    found = shutil.which(program)
    if found is None:
        raise InvalidInput(f"use {program}", "it is not installed", "`gpuctl bootstrap laptop` installs it")
    return found


def installed(program: str) -> bool:
    return shutil.which(program) is not None


def _without_kubeconfig(doing: str) -> InvalidInput | None:
    """Why kubectl asked localhost: nothing tells it of a cluster. None where something does."""
    if config.files() or "KUBERNETES_SERVICE_HOST" in os.environ:  # kubectl finds its way inside a pod by itself
        return None
    named = os.environ.get("KUBECONFIG") or "~/.kube/config"
    return InvalidInput(doing, f"there is no kubeconfig {named}", "set KUBECONFIG, or write ~/.kube/config")


@dataclass(frozen=True)
class Kubectl:
    """kubectl as the user has it; context and namespace are the kubeconfig's own where they are empty."""

    context: str = ""
    namespace: str = ""

    def argv(self, *words: str) -> list[str]:
        """The whole command line."""
        context = [f"--context={self.context}"] if self.context else []
        namespace = [f"--namespace={self.namespace}"] if self.namespace else []
        return ["kubectl", *context, *namespace, *words]

    def ask(self, doing: str, *words: str, limit: float = 30) -> str:
        """What it prints; `GpuctlError` with its own words where it fails."""
        code, out, err = self.try_to(*words, limit=limit)
        if code:
            raise _without_kubeconfig(doing) or GpuctlError(doing, gist(err), ANSWERS)
        return out

    def try_to(self, *words: str, limit: float = 30) -> tuple[int, str, str]:
        """Exit status, output and error output: the caller judges them. 124: it did not end within `limit` seconds."""
        need("kubectl")
        try:
            done = subprocess.run(
                self.argv(*words), stdin=subprocess.DEVNULL, capture_output=True, timeout=limit, check=False
            )
        except subprocess.TimeoutExpired:
            return 124, "", f"kubectl did not end within {limit:g} s"
        return done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")

    def json(self, doing: str, *words: str, limit: float = 30) -> dict[str, Any]:
        """What it prints with `-o json`."""
        found = json.loads(self.ask(doing, *words, "-o", "json", limit=limit))
        if not isinstance(found, dict):
            raise GpuctlError(doing, "kubectl did not print a JSON object")
        return found


def gist(err: str) -> str:
    """The last line of what a program complained of."""
    lines = [line for line in err.strip().splitlines() if line.strip()]
    return lines[-1].removeprefix("error: ") if lines else "kubectl failed and said nothing"


def show(argv: Sequence[str], folder: str | None = None, stdin: str | None = None) -> int:
    """Run a program on the user's terminal and return its exit status; Ctrl-C is for the program alone.

    However it ends, the terminal is as it was before.
    """
    need(argv[0])
    with (
        as_it_was(),
        subprocess.Popen(list(argv), cwd=folder, stdin=None if stdin is None else subprocess.PIPE) as process,
    ):
        # Handlers, not SIG_IGN, which a program started meanwhile would inherit.
        ending = dict.fromkeys((signal.SIGTERM, signal.SIGHUP), lambda *_: process.terminate())
        mine = {signal.SIGINT: lambda *_: None, **ending}
        before = {number: signal.signal(number, handler) for number, handler in mine.items()}
        try:
            with contextlib.suppress(BrokenPipeError):  # it may end without reading all of it
                process.communicate(None if stdin is None else stdin.encode())
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        return process.returncode


def output_of(argv: Sequence[str], folder: str | None = None, limit: float = 30) -> str | None:
    """What a program prints; None where it is missing, fails, or does not end within `limit` seconds."""
    if not installed(argv[0]):
        return None
    try:
        done = subprocess.run(
            list(argv), cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=limit, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def fzf(lines: Sequence[str], *options: str) -> list[str]:
    """Let the user choose with fzf; what it prints (with --print-query the query first), nothing where they leave."""
    need("fzf")
    done = subprocess.run(["fzf", *options], input="\n".join(lines), stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode in CHOSE_NOTHING and "--print-query" not in options:
        return []
    if done.returncode not in (0, *CHOSE_NOTHING):
        raise GpuctlError("let you choose with fzf", f"it ended with exit status {done.returncode}")
    return done.stdout.splitlines() if done.returncode != 130 else []


def tmux(*words: str) -> str | None:
    """What a tmux command prints, asked of the server we are in ($TMUX); None outside of tmux or where it fails."""
    if not os.environ.get("TMUX"):
        return None
    return output_of(["tmux", *words])


def become(argv: Sequence[str], environment: Mapping[str, str]) -> NoReturn:
    """Put another program in the place of this one: it keeps the process number."""
    os.execvpe(argv[0], list(argv), dict(environment))  # noqa: S606 - no shell reads these words
