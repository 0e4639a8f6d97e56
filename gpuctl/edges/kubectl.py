"""kubectl and what goes with it at a prompt: fzf, the pane's tmux, a shell. What gpuctl.kube starts is started here."""

from __future__ import annotations

import collections
import contextlib
import json
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from gpuctl.core.errors import GpuctlError, Unusable

CHOSE_NOTHING = (1, 130)  # fzf: no match, Escape or Ctrl-C


def need(program: str) -> str:
    """Where a program is; `Unusable` where it is not installed."""
    found = shutil.which(program)
    if found is None:
        raise Unusable(f"use {program}", "it is not installed", "`gpuctl bootstrap laptop` installs it")
    return found


def installed(program: str) -> bool:
    return shutil.which(program) is not None


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
            raise GpuctlError(doing, _gist(err), "`kubectl cluster-info` shows whether the cluster answers")
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


def _gist(err: str) -> str:
    lines = [line for line in err.strip().splitlines() if line.strip()]
    return lines[-1].removeprefix("error: ") if lines else "kubectl failed and said nothing"


def show(argv: Sequence[str], folder: str | None = None, stdin: str | None = None) -> int:
    """Run a program on the user's terminal and return its exit status; Ctrl-C is for the program alone."""
    need(argv[0])
    with subprocess.Popen(list(argv), cwd=folder, stdin=None if stdin is None else subprocess.PIPE) as process:
        # Handlers, not SIG_IGN, which a program started meanwhile would inherit.
        mine = {signal.SIGINT: lambda *_: None, signal.SIGTERM: lambda *_: process.terminate()}
        before = {number: signal.signal(number, handler) for number, handler in mine.items()}
        try:
            with contextlib.suppress(BrokenPipeError):  # it may end without reading all of it
                process.communicate(None if stdin is None else stdin.encode())
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        return process.returncode


def output_of(argv: Sequence[str], folder: str | None = None) -> str | None:
    """What a program prints; None where it is missing or fails."""
    if not installed(argv[0]):
        return None
    done = subprocess.run(
        list(argv), cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30, check=False
    )
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


class Running:
    """A program that runs beside us: its last lines are kept, and it ends with everything it started."""

    def __init__(self, argv: Sequence[str]) -> None:
        need(argv[0])
        self.lines: collections.deque[str] = collections.deque(maxlen=20)
        # A session of its own: Ctrl-C reaches gpuctl alone, which then ends all that it started.
        self._process = subprocess.Popen(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self._process.stdout or ():
            self.lines.append(line.rstrip())

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    @property
    def last_words(self) -> str:
        """Its last line; where it has ended, after all of its output was read."""
        if self.ended:
            self._reader.join(1)
        return _gist("\n".join(self.lines))

    def stop(self) -> None:
        """End it: asked first, then made to."""
        _end(self._process)


def _end(process: subprocess.Popen[Any]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(2)
            return


class Events:
    """A stream of `kubectl get --watch` events that starts again, with all that there is, whenever it breaks.

    Each pause between two tries is longer than the one before, up to half a minute. `told` gets (type, object); the
    type LIST comes first after every start and carries the whole list, since a break hides what was deleted meanwhile.
    `lost` hears why the stream broke.
    """

    def __init__(
        self,
        kubectl: Kubectl,
        what: Sequence[str],
        told: Callable[[str, dict[str, Any]], None],
        lost: Callable[[str], None],
    ) -> None:
        self._kubectl, self._what, self._told, self._lost = kubectl, list(what), told, lost
        self._stopped = threading.Event()
        self._running: list[subprocess.Popen[str]] = []
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._go_on, daemon=True)

    def start(self) -> None:
        need("kubectl")
        self._thread.start()

    def stop(self) -> None:
        """End the stream and each kubectl of it."""
        self._stopped.set()
        self._end_all()
        self._thread.join(5)

    def _end_all(self) -> None:
        with self._lock:
            for process in self._running:
                _end(process)
            self._running.clear()

    def _go_on(self) -> None:
        tries = 0
        while not self._stopped.is_set():
            heard = self._once()
            tries = 1 if heard else tries + 1
            self._stopped.wait(0.5 if heard else min(30, 2 ** min(tries, 5) / 2))

    def _once(self) -> bool:
        """One watch until it breaks; whether the cluster answered."""
        heard = False
        try:
            watch = self._kubectl_of("--watch", "--output-watch-events")
            # The list is asked for while the watch already runs: what is deleted between the two is still told.
            out, err = self._kubectl_of("--request-timeout=20s").communicate()
            self._told("LIST", _list(out, err))
            heard = True
            for event in events(watch.stdout or ()):
                self._told(str(event.get("type", "")), event.get("object") or {})
            raise GpuctlError("go on with the watch", "kubectl ended it")
        except (GpuctlError, ValueError) as error:
            if not self._stopped.is_set():
                self._lost(str(error))
        finally:
            self._end_all()
        return heard

    def _kubectl_of(self, *more: str) -> subprocess.Popen[str]:
        with self._lock:
            if self._stopped.is_set():
                raise GpuctlError("watch", "it was ended")
            process = subprocess.Popen(
                self._kubectl.argv("get", *self._what, *more, "-o", "json"),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                # The watch's own complaints are the list's too; a pipe that nobody reads would fill up.
                stderr=subprocess.DEVNULL if "--watch" in more else subprocess.PIPE,
                text=True,
                errors="replace",
                start_new_session=True,
            )
            self._running.append(process)
            return process


def _list(out: str, err: str) -> dict[str, Any]:
    found = json.loads(out) if out.strip() else None
    if not isinstance(found, dict):
        raise GpuctlError("list what to watch", _gist(err))
    return found


def events(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """The JSON objects of a stream in which each ends with a line that starts with its closing brace."""
    kept: list[str] = []
    for line in lines:
        kept.append(line)
        if line.startswith("}") or (len(kept) == 1 and line.startswith("{") and line.rstrip().endswith("}")):
            yield json.loads("".join(kept))
            kept = []
        elif not kept[0].startswith("{"):  # a warning or an error of kubectl's own
            kept = []
