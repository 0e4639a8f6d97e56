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
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gpuctl.core.paths import collection_dir
from gpuctl.edges.programs import last_part
from gpuctl.engine import answers, printable

GRACE_SECONDS = 10
MOST_OF_AN_ERROR = 2**20  # bytes of ansible-playbook's own output
RUN = "run"  # the name of our only run in ansible-runner's folder


@dataclass(frozen=True)
class HostResult:
    """Result of one host: the module's, or the reason why there is none. `wrong`: all output if it is unreachable."""

    host: str
    result: Mapping[str, Any] | None = None
    wrong: str = ""
    unreachable: bool = False
    hint: str = ""


@dataclass(frozen=True)
class Play:
    """A playbook of the collection with its hosts and inputs.

    `files`: name -> text, written to the private folder; `file_of`: host -> name of the file that `host_profile_name`
    becomes. `limit`: seconds for one task on one host; 0 for none. `skip_tags`: tags of tasks to leave out, as Ansible
    starts a process for each task and host, even for a task that it then skips.
    """

    playbook: str
    inventory: Path
    hosts: Sequence[str]
    variables: Mapping[str, Any]
    files: Mapping[str, str]
    file_of: Mapping[str, str]
    forks: int
    limit: int = 0
    check: bool = False
    skip_tags: Sequence[str] = ()

    @classmethod
    def on_this_machine(cls, playbook: str, variables: Mapping[str, Any], limit: int = 0, check: bool = False) -> Play:
        """Play a playbook on localhost."""
        inventory = collection_dir() / "inventories" / "localhost"
        return cls(playbook, inventory, ["localhost"], variables, {}, {}, forks=1, limit=limit, check=check)


def run(play: Play, on_result: Callable[[HostResult], None], interrupted: Callable[[], bool]) -> str:
    """Run a playbook to its end; return Ansible's own error if it could not run at all, else ""."""
    import ansible_runner

    events = Events(on_result)
    # ansible-runner writes its input into a folder: private, without the environment, and deleted afterwards.
    with tempfile.TemporaryDirectory(prefix="gpuctl-") as folder:
        flags = _flags(play, Path(folder))
        _keep_environment_off_disk(Path(folder))
        runner = ansible_runner.run(
            private_data_dir=folder,
            project_dir=str(Path.cwd()),  # so that the user's ansible.cfg applies
            ident=RUN,
            playbook=play.playbook,
            inventory=str(play.inventory),
            cmdline=shlex.join(flags),
            quiet=True,
            suppress_env_files=True,
            envvars=_environment(play),
            event_handler=events.handle,
            cancel_callback=lambda: interrupted() and events.end(),
        )
        return "" if runner.status in ("successful", "canceled") or events.reported else _own_error(runner)


@contextmanager
def no_new_folder() -> Iterator[None]:
    """Remove the empty ~/.ansible that Ansible creates, unless it existed before."""
    folder = Path.home() / ".ansible"
    existed = folder.exists()
    try:
        yield
    finally:
        with suppress(OSError):  # it is not empty, or does not exist
            if not existed:
                folder.rmdir()


def _environment(play: Play) -> dict[str, str]:
    """Environment variables for ansible-playbook besides the user's."""
    # The ansible-core that gpuctl was installed with comes first, even if its folder is not on the PATH.
    path = os.pathsep.join([sysconfig.get_path("scripts"), os.environ.get("PATH", os.defpath)])
    settings = {"PIPELINING": "True", "GATHERING": "explicit", "NOCOLOR": "1", "TASK_TIMEOUT": str(play.limit)}
    # A module's parameters, such as a test's environment, do not belong in a node's log.
    settings["NO_TARGET_SYSLOG"] = "True"
    # Ansible would otherwise leave a folder in the user's home.
    settings["LOCAL_TEMP"] = tempfile.gettempdir()
    # ansible-runner disables host key checking by default.
    settings["HOST_KEY_CHECKING"] = os.environ.get("ANSIBLE_HOST_KEY_CHECKING", "True")
    return {"PATH": path, answers.AS_TEXT: "1", **{f"ANSIBLE_{name}": value for name, value in settings.items()}}


def _keep_environment_off_disk(folder: Path) -> None:
    """ansible-runner writes its whole environment to a file: put a pipe in its place and discard the content."""
    artifacts = folder / "artifacts" / RUN
    artifacts.mkdir(parents=True, mode=0o700)
    os.mkfifo(artifacts / "command", mode=0o600)
    threading.Thread(target=(artifacts / "command").read_bytes, daemon=True).start()


def _flags(play: Play, folder: Path) -> list[str]:
    """Write the playbook's inputs to the private folder; return the options that name them."""
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
    flags += [f"--skip-tags={','.join(play.skip_tags)}"] if play.skip_tags else []
    return [*flags, "--check", "--diff"] if play.check else flags


def _own_error(runner: Any) -> str:
    with Path(runner.config.artifact_dir, "stdout").open("rb") as stdout:
        text = last_part(stdout, MOST_OF_AN_ERROR)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return next(
        (line for line in lines if "ERROR" in line),
        lines[-1] if lines else f"ansible-playbook {runner.status}",
    )


class Events:
    """Turns ansible-runner's events into one `HostResult` a host."""

    def __init__(self, on_result: Callable[[HostResult], None]) -> None:
        self.on_result = on_result
        self.reported: set[str] = set()
        self._playbook = 0  # process id of ansible-playbook, from its events
        self._end_requested_at = 0.0

    def end(self) -> bool:
        """Ask Ansible to end with its workers. True if it has to be killed because its time to end is over."""
        if not self._end_requested_at and self._playbook:
            os.kill(self._playbook, signal.SIGTERM)
        self._end_requested_at = self._end_requested_at or time.monotonic()
        return not self._playbook or time.monotonic() - self._end_requested_at > GRACE_SECONDS

    def handle(self, event: Mapping[str, Any]) -> bool:
        self._playbook = event.get("pid", self._playbook)
        data = event.get("event_data", {})
        host, res, kind = data.get("host"), data.get("res"), event.get("event")
        # Modules ran on hosts, which are not trusted: any value may be of any type.
        result = answers.unpacked(res) if isinstance(res, Mapping) else {}
        if host and kind == "runner_on_unreachable":
            self._report(HostResult(host, wrong=str(result.get("msg") or "").strip(), unreachable=True))
        elif host and kind in ("runner_on_ok", "runner_on_failed"):
            if any(name in result for name in ("knobs", "tools", "nccl", "cluster")):
                self._report(HostResult(host, result=result))
            elif "error" in result:
                self._report(_refusal(host, result["error"]))
            elif kind == "runner_on_failed":
                # The answer of a failed reboot has `rebooted`: the host did not come back.
                lost = "timedout" in result or "rebooted" in result
                self._report(HostResult(host, wrong=_reason(result), unreachable=lost))
        return False

    def _report(self, result: HostResult) -> None:
        self.reported.add(result.host)
        self.on_result(replace(result, wrong=printable(result.wrong)))


def _refusal(host: str, error: object) -> HostResult:
    try:
        wrong, hint = answers.reason(error)
    except answers.BadAnswer as misfit:
        return HostResult(host, wrong=str(misfit))
    return HostResult(host, wrong=wrong, hint=hint)


def _reason(result: Mapping[str, Any]) -> str:
    """Why a task failed; if the module crashed, its last line, which says more than Ansible's message."""
    if "timedout" in result:
        limit = result["timedout"].get("period") if isinstance(result["timedout"], Mapping) else None
        return f"it gave no answer within {limit} s" if isinstance(limit, (int, float)) else "it gave no answer in time"
    crash = str(result.get("module_stderr") or "").strip()
    return crash.splitlines()[-1] if "Traceback" in crash else _first_line(result.get("msg"))


def _first_line(text: object) -> str:
    lines = [line.strip() for line in str(text or "").splitlines() if line.strip()]
    return lines[0] if lines else "it failed without a message"
