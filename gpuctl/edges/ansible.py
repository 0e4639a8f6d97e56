"""ansible-runner: run a playbook of the collection and report the result of each host as it arrives."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sysconfig
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

GRACE_SECONDS = 10
RUN = "run"  # the name of our only run in ansible-runner's folder


@dataclass(frozen=True)
class HostResult:
    """The end of one host: the module's result, or why there is none (of an unreachable one, all that was said)."""

    host: str
    result: Mapping[str, Any] | None = None
    wrong: str = ""
    unreachable: bool = False
    hint: str = ""


@dataclass(frozen=True)
class Play:
    """A playbook of the collection, where it runs and with what."""

    playbook: str
    inventory: Path
    hosts: Sequence[str]
    variables: Mapping[str, Any]
    files: Mapping[str, str]  # name -> text, put into the private folder
    file_of: Mapping[str, str]  # host -> the name of its file, which `host_profile_name` becomes
    forks: int
    limit: int = 0  # seconds that one task may take on one host; 0: for ever
    check: bool = False


def run(play: Play, on_result: Callable[[HostResult], None], broken_off: Callable[[], bool]) -> str:
    """Run it to its end; returns what Ansible itself had to say when it could not run at all."""
    import ansible_runner

    events = _Events(on_result)
    # ansible-runner writes what it is given into its folder: private, without environment, and gone afterwards.
    with tempfile.TemporaryDirectory(prefix="gpuctl-") as folder:
        flags = _flags(play, Path(folder))
        _keep_environment_off_disk(Path(folder))
        runner = ansible_runner.run(
            private_data_dir=folder,
            project_dir=str(Path.cwd()),  # where Ansible runs: the user's own ansible.cfg counts
            ident=RUN,
            playbook=play.playbook,
            inventory=str(play.inventory),
            cmdline=shlex.join(flags),
            quiet=True,
            suppress_env_files=True,
            envvars=_environment(play),
            event_handler=events.hear,
            cancel_callback=lambda: broken_off() and events.end(),
        )
        return "" if runner.status in ("successful", "canceled") or events.heard else _last_words(runner)


@contextmanager
def no_new_folder() -> Iterator[None]:
    """Ansible leaves an empty folder in a home that had none: it is not the user's."""
    folder = Path.home() / ".ansible"
    existed = folder.exists()
    try:
        yield
    finally:
        with suppress(OSError):  # it is not empty, or was not made
            if not existed:
                folder.rmdir()


def _environment(play: Play) -> dict[str, str]:
    """Environment variables of ansible-playbook on top of the user's own."""
    # The ansible-core that gpuctl was installed with comes first, also where its folder is not on the PATH.
    path = os.pathsep.join([sysconfig.get_path("scripts"), os.environ.get("PATH", os.defpath)])
    settings = {"PIPELINING": "True", "GATHERING": "explicit", "NOCOLOR": "1", "TASK_TIMEOUT": str(play.limit)}
    settings["NO_TARGET_SYSLOG"] = (
        "True"  # a module's parameters, such as a test's environment, are not for a node's log
    )
    settings["LOCAL_TEMP"] = (
        tempfile.gettempdir()
    )  # else Ansible makes a folder in the user's home, and leaves it there
    # ansible-runner switches the checking of host keys off unless it is told otherwise.
    settings["HOST_KEY_CHECKING"] = os.environ.get("ANSIBLE_HOST_KEY_CHECKING", "True")
    return {"PATH": path, **{f"ANSIBLE_{name}": value for name, value in settings.items()}}


def _keep_environment_off_disk(folder: Path) -> None:
    """ansible-runner writes its whole environment into a file: let a pipe stand there, and forget what comes out."""
    artifacts = folder / "artifacts" / RUN
    artifacts.mkdir(parents=True, mode=0o700)
    os.mkfifo(artifacts / "command", mode=0o600)
    threading.Thread(target=(artifacts / "command").read_bytes, daemon=True).start()


def _flags(play: Play, folder: Path) -> list[str]:
    """Write what the playbook is given into the private folder, and name it on the command line."""
    for name, text in play.files.items():
        (folder / name).write_text(text)
    variables = dict(play.variables)
    if play.file_of:
        variables["gpuctl_profiles"] = {host: str(folder / name) for host, name in play.file_of.items()}
        variables["host_profile_name"] = "{{ gpuctl_profiles[inventory_hostname] }}"
    (folder / "variables.json").write_text(json.dumps(variables))
    (folder / "hosts").write_text("\n".join(play.hosts) + "\n")
    flags = [
        f"--extra-vars=@{folder / 'variables.json'}",
        f"--limit=@{folder / 'hosts'}",
        f"--forks={play.forks}",
    ]
    return [*flags, "--check", "--diff"] if play.check else flags


def _last_words(runner: Any) -> str:
    text = Path(runner.config.artifact_dir, "stdout").read_text()
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return next(
        (line for line in lines if "ERROR" in line),
        lines[-1] if lines else f"ansible-playbook {runner.status}",
    )


class _Events:
    """Turns ansible-runner's events into one `HostResult` a host."""

    def __init__(self, on_result: Callable[[HostResult], None]) -> None:
        self.on_result = on_result
        self.heard: set[str] = set()
        self._playbook = 0  # its process, which sends the events
        self._asked_to_end = 0.0

    def end(self) -> bool:
        """Ask Ansible to end, which takes its workers along. True where it has to be killed: it had time enough."""
        if not self._asked_to_end and self._playbook:
            os.kill(self._playbook, signal.SIGTERM)
        self._asked_to_end = self._asked_to_end or time.monotonic()
        return not self._playbook or time.monotonic() - self._asked_to_end > GRACE_SECONDS

    def hear(self, event: Mapping[str, Any]) -> bool:
        self._playbook = event.get("pid", self._playbook)
        data = event.get("event_data", {})
        host, result = data.get("host"), data.get("res", {})
        kind = event.get("event")
        if host and kind == "runner_on_unreachable":
            self._tell(HostResult(host, wrong=str(result.get("msg") or "").strip(), unreachable=True))
        elif host and kind in ("runner_on_ok", "runner_on_failed"):
            if any(name in result for name in ("knobs", "tools", "nccl", "cluster")):
                self._tell(HostResult(host, result=result))
            elif "error" in result:
                self._tell(HostResult(host, **result["error"]))
            elif kind == "runner_on_failed":
                # `rebooted` stands in the answer of a reboot that failed: the host did not come back.
                lost = "timedout" in result or "rebooted" in result
                self._tell(HostResult(host, wrong=_reason(result), unreachable=lost))
        return False

    def _tell(self, result: HostResult) -> None:
        self.heard.add(result.host)
        self.on_result(result)


def _reason(result: Mapping[str, Any]) -> str:
    """Why a task failed: where the module died, its last words, which say more than Ansible's."""
    if "timedout" in result:
        return f"it gave no answer within {result['timedout']['period']} s"
    died = str(result.get("module_stderr") or "").strip()
    return died.splitlines()[-1] if "Traceback" in died else _first_line(result.get("msg"))


def _first_line(text: object) -> str:
    lines = [line.strip() for line in str(text or "").splitlines() if line.strip()]
    return lines[0] if lines else "it failed without a word"
