"""Run kubectl and the interactive programs beside it: fzf, tmux of this pane, a shell."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.domain import kube_login
from gpuctl.domain.kube_login import Login
from gpuctl.edges.kube import config
from gpuctl.edges.processes import Processes
from gpuctl.edges.programs import gist, installed, need
from gpuctl.edges.terminal import show as show  # noqa: PLC0414 - kubectl is shown, too
from gpuctl.engine import typed_json

ANSWERS = "`kubectl cluster-info` shows whether the cluster answers"
RIGHTS = "ask for a role that allows it; `kubectl auth can-i --list` shows what you may do"
FORBIDDEN = "(Forbidden)"
EXCESS = 125  # our exit status for a program that printed too much
MOST_OF_A_LIST = 2**28  # bytes; ten thousand pods as JSON have about a third of that
CHOSE_NOTHING = (1, 130)  # fzf: no match, Escape or Ctrl-C


def _without_kubeconfig(doing: str) -> InvalidInput | None:
    """Return the error if kubectl has no kubeconfig, and therefore contacts localhost; else None."""
    if config.files() or "KUBERNETES_SERVICE_HOST" in os.environ:  # inside a pod, kubectl uses the service account
        return None
    named = os.environ.get("KUBECONFIG") or "~/.kube/config"
    return InvalidInput(doing, f"there is no kubeconfig {named}", "set KUBECONFIG, or write ~/.kube/config")


def failure(doing: str, stderr: str, context: str = "") -> GpuctlError:
    """Return the error for kubectl's error output: a login that failed, or its own message."""
    login = Login(_user(context), "", profile=os.environ.get("AWS_PROFILE", ""))
    hint = RIGHTS if FORBIDDEN in stderr else ANSWERS
    return kube_login.of_kubectl(doing, login, stderr) or GpuctlError(doing, gist(stderr), hint)


def _user(context: str) -> str:
    """Return the name of a context's user, of the current one by default."""
    with contextlib.suppress(InvalidInput):
        paths = config.files()
        found = next((c for c in config.contexts(*paths) if c.name == context), None) or config.current(*paths)
        return found.user if found else ""
    return ""


@dataclass(frozen=True)
class Kubectl:
    """The user's kubectl; empty context and namespace are the kubeconfig's."""

    context: str = ""
    namespace: str = ""

    def argv(self, *arguments: str) -> list[str]:
        """Return the whole command line."""
        context = [f"--context={self.context}"] if self.context else []
        namespace = [f"--namespace={self.namespace}"] if self.namespace else []
        return ["kubectl", *context, *namespace, *arguments]

    def ask(self, doing: str, *arguments: str, limit: float = 30) -> str:
        """Return kubectl's output; `GpuctlError` with kubectl's own message if it fails."""
        code, out, err = self.try_to(*arguments, limit=limit)
        if code == EXCESS:
            raise GpuctlError(doing, err)
        if code:
            raise _without_kubeconfig(doing) or failure(doing, err, self.context)
        return out

    def try_to(self, *arguments: str, limit: float = 30) -> tuple[int, str, str]:
        """Return exit status, output and error output.

        Status 124 if it did not end within `limit` seconds, 125 if it printed too much; the output is then empty.
        """
        need("kubectl")
        # A credential plugin may ask on the terminal.
        done = Processes(MOST_OF_A_LIST, new_session=False).run(self.argv(*arguments), b"", limit)
        if done.excess:
            return EXCESS, "", f"kubectl printed more than {MOST_OF_A_LIST >> 20} MiB and was stopped"
        if done.code is None:
            return 124, "", f"kubectl did not end within {limit:g} s"
        return done.code, done.out.decode(errors="replace"), done.err

    def json(self, doing: str, *arguments: str, limit: float = 30) -> dict[str, Any]:
        """Return the document that kubectl prints with `-o json`."""
        text = self.ask(doing, *arguments, "-o", "json", limit=limit)
        try:
            return typed_json.read(typed_json.parse(text), dict[str, Any])
        except ValueError as error:
            raise GpuctlError(doing, "kubectl did not print a JSON object") from error


def output_of(argv: Sequence[str], folder: str | None = None, limit: float = 30) -> str | None:
    """Return a program's whole output; None if it is missing, fails, prints too much or takes more than `limit`
    seconds.
    """
    if not installed(argv[0]):
        return None
    try:
        done = Processes(new_session=False).run(argv, b"", limit, folder=folder)
    except OSError:
        return None
    return done.out.decode(errors="replace") if done.code == 0 else None


def fzf(lines: Sequence[str], *options: str) -> list[str]:
    """Let the user choose with fzf; return its output (with --print-query the query first), empty if they cancel."""
    need("fzf")
    done = subprocess.run(["fzf", *options], input="\n".join(lines), stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode in CHOSE_NOTHING and "--print-query" not in options:
        return []
    if done.returncode not in (0, *CHOSE_NOTHING):
        raise GpuctlError("let you choose with fzf", f"it ended with exit status {done.returncode}")
    return done.stdout.splitlines() if done.returncode != 130 else []


def tmux(*arguments: str) -> str | None:
    """Run a tmux command on the current server ($TMUX), and return its output; None outside tmux or on failure."""
    if not os.environ.get("TMUX"):
        return None
    return output_of(["tmux", *arguments])


def become(argv: Sequence[str], environment: Mapping[str, str]) -> NoReturn:
    """Replace this process by another program; it keeps the PID."""
    os.execvpe(argv[0], list(argv), dict(environment))  # noqa: S606 - no shell reads these words
