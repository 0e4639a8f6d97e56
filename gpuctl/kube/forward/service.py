"""Forwards in the background: a process for each request, and the state files by which others list and stop it."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.core.paths import private, state_dir, write_atomically
from gpuctl.edges.background import Detached
from gpuctl.edges.kube import config
from gpuctl.kube import private_kubeconfig
from gpuctl.kube.forward import flow
from gpuctl.kube.forward.model import Request
from gpuctl.kube.forward.state_machine import Line, State
from gpuctl.kube.signals import stop_on_signal

HEARTBEAT_S = 30.0  # the status bar ignores state files that are older than two minutes
SETTLE_S = 5.0  # a forward that is not up by then is reported as it is
STOP_S = 20.0
POLL_S = 0.05
UP = (State.UP, State.OPEN)
PROGRAM = "GPUCTL_PROGRAM"
# Variables with paths that gpuctl or kubectl read.
PATHS = (
    *("KUBECONFIG", "HOME", "PATH", PROGRAM),
    *("GPUCTL_CONFIG_DIR", "GPUCTL_STATE_DIR", "GPUCTL_CACHE_DIR"),
    *("XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"),
)


@dataclass(frozen=True)
class Port:
    """A forwarded port; `state` is a value of `State`, `why` its reason if it is not up."""

    local: int
    pod: str
    remote: int
    state: str
    why: str = ""

    @property
    def up(self) -> bool:
        return self.state in UP


@dataclass(frozen=True)
class Service:
    """A running background process; `trouble` is the error of its watch, if any."""

    number: int
    pid: int
    context: str
    namespace: str
    ports: tuple[Port, ...]
    trouble: str = ""


@dataclass(frozen=True)
class Failure:
    """A background process that ended at its start: its exit code and error output."""

    code: int
    stderr: str


def folder() -> Path:
    return state_dir() / "forwards"


def start(request: Request, probe_every: float) -> Service | Failure:
    """Start a background process; returns when its forwards are up, or after a few seconds as they are."""
    environment = with_absolute_paths(os.environ)
    program = environment.get(PROGRAM) or str(Path(sys.argv[0]).absolute())
    order = json.dumps({"request": asdict(request), "probe_every": probe_every})
    process = Detached([program, "kube", "forward", "serve"], order.encode(), environment)
    try:
        end = None
        while True:
            code = process.exit_code
            if code is not None:
                return Failure(code, process.stderr())
            service = next((service for service in running() if service.pid == process.pid), None)
            if service and end is None:
                end = time.monotonic() + SETTLE_S
            starting = service is None or any(port.state == State.STARTING for port in service.ports)
            if service and end is not None and (not starting or time.monotonic() > end):
                return service
            time.sleep(POLL_S)
    except KeyboardInterrupt:
        process.terminate()
        raise


def with_absolute_paths(environment: Mapping[str, str]) -> dict[str, str]:
    """Make the paths of variables absolute, for a process that runs in another folder."""
    changed = dict(environment)
    for name in PATHS:
        paths = environment.get(name, "").split(os.pathsep)
        # A program without a slash is searched on the PATH.
        absolute = [str(Path(path).absolute()) if path and (name != PROGRAM or "/" in path) else path for path in paths]
        if name in environment:
            changed[name] = os.pathsep.join(absolute)
    return changed


def serve(order: str) -> None:
    """Run as the background process until SIGTERM; `order` is what `start` passed."""
    document = json.loads(order)
    request = Request(**document["request"])
    with _claimed() as number, stop_on_signal() as stopped, _private_kubeconfig():
        file = _state_file(number)
        beat = threading.Thread(target=_beat, args=(file, stopped), daemon=True)
        beat.start()
        written = ""

        def show(lines: Sequence[Line], trouble: str) -> None:
            nonlocal written
            service = Service(number, os.getpid(), request.context, request.namespace, _ports(lines), trouble)
            text = _as_text(service)
            if text != written:
                write_atomically(file, text)
                written = text

        flow.maintain(request, show, stopped, document["probe_every"])


def _beat(file: Path, stopped: threading.Event) -> None:
    while not stopped.wait(HEARTBEAT_S):
        with contextlib.suppress(FileNotFoundError):
            os.utime(file)


@contextlib.contextmanager
def _private_kubeconfig() -> Iterator[None]:
    """Use a copy of the kubeconfig: that of the shell which started the forwards is removed with the shell."""
    copy = private_kubeconfig.copy(config.files(), os.getpid(), os.uname().nodename)
    os.environ["KUBECONFIG"] = str(copy)
    try:
        yield
    finally:
        copy.unlink(missing_ok=True)


@contextlib.contextmanager
def _claimed() -> Iterator[int]:
    """Hold the lock of the lowest free number; the kernel releases it however the process ends."""
    private(folder())
    for number in itertools.count(1):
        lock = os.open(_lock_file(number), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            continue
        try:
            os.ftruncate(lock, 0)
            os.write(lock, f"{os.getpid()}\n".encode())
            yield number
        finally:
            _state_file(number).unlink(missing_ok=True)
            os.close(lock)
        return


def _ports(lines: Sequence[Line]) -> tuple[Port, ...]:
    return tuple(
        Port(local, line.slot.pod, remote, str(line.state), "" if line.state in UP else line.why)
        for line in lines
        for local, remote in line.slot.ports
    )


def _as_text(service: Service) -> str:
    """Format a state file: a line with the numbers of ports that are up and of all, for the status bar; then JSON."""
    return f"{sum(port.up for port in service.ports)} {len(service.ports)}\n{json.dumps(asdict(service))}\n"


def _state_file(number: int) -> Path:
    return folder() / f"{number}.state"


def _lock_file(number: int) -> Path:
    return folder() / f"{number}.lock"


def running() -> list[Service]:
    """List the running background processes by number; state files of killed ones are removed."""
    numbers = sorted(int(file.stem) for file in folder().glob("*.state") if file.stem.isdigit())
    return [service for service in map(_read, numbers) if service]


def _read(number: int) -> Service | None:
    with _unlocked(number) as ended:
        if ended:
            with contextlib.suppress(OSError):  # in a folder that is read-only, it stays
                _state_file(number).unlink(missing_ok=True)
            return None
    try:
        values = json.loads(_state_file(number).read_text().splitlines()[1])
    except FileNotFoundError:  # it ended meanwhile
        return None
    return Service(**{**values, "ports": tuple(Port(**port) for port in values["ports"])})


@contextlib.contextmanager
def _unlocked(number: int) -> Iterator[bool]:
    """Yield True if no process holds the number; while this block runs, none can claim it."""
    lock = os.open(_lock_file(number), os.O_RDONLY | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        yield True
    except BlockingIOError:
        yield False
    finally:
        os.close(lock)


def stop(numbers: Sequence[int]) -> list[Service]:
    """End background processes and wait for it; no numbers: all of them. Returns those that were running."""
    services = {service.number: service for service in running()}
    for number in numbers:
        if number not in services:
            hint = "`gpuctl kube forward list` shows them"
            raise InvalidInput(f"stop the forwards {number}", "none run under that number", hint)
    chosen = [services[number] for number in dict.fromkeys(numbers)] or list(services.values())
    for service in chosen:
        with contextlib.suppress(ProcessLookupError):
            os.kill(service.pid, signal.SIGTERM)
    end = time.monotonic() + STOP_S
    for service in chosen:
        while not _ended(service.number):
            if time.monotonic() > end:
                raise GpuctlError(f"stop the forwards {service.number}", f"process {service.pid} does not end")
            time.sleep(POLL_S)
    return chosen


def _ended(number: int) -> bool:
    with _unlocked(number) as ended:
        return ended
