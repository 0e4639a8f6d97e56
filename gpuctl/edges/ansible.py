"""ansible-runner: run one of our playbooks on some hosts and hear of each host as it is done."""

from __future__ import annotations

import json
import shlex
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Told:
    """The end of one host: the module's result, or why there is none."""

    host: str
    result: Mapping[str, Any] | None = None
    wrong: str = ""
    unreachable: bool = False


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
    check: bool = False


def run(play: Play, told: Callable[[Told], None], broken_off: Callable[[], bool]) -> str:
    """Run it to its end; returns what Ansible itself had to say when it could not run at all."""
    import ansible_runner

    events = _Events(told)
    # ansible-runner writes what it is given into its folder: private, without environment, and gone afterwards.
    with tempfile.TemporaryDirectory(prefix="gpuctl-") as folder:
        flags = _flags(play, Path(folder))
        runner = ansible_runner.run(
            private_data_dir=folder,
            playbook=play.playbook,
            inventory=str(play.inventory),
            cmdline=shlex.join(flags),
            quiet=True,
            suppress_env_files=True,
            envvars={"ANSIBLE_PIPELINING": "True", "ANSIBLE_GATHERING": "explicit", "ANSIBLE_NOCOLOR": "1"},
            event_handler=events.hear,
            cancel_callback=broken_off,
        )
        return "" if runner.status in ("successful", "canceled") or events.heard else _last_words(runner)


def _flags(play: Play, folder: Path) -> list[str]:
    """Write what the playbook is given into the private folder, and name it on the command line."""
    for name, text in play.files.items():
        (folder / name).write_text(text)
    given = dict(play.variables)
    if play.file_of:
        given["gpuctl_profiles"] = {host: str(folder / name) for host, name in play.file_of.items()}
        given["host_profile_name"] = "{{ gpuctl_profiles[inventory_hostname] }}"
    (folder / "variables.json").write_text(json.dumps(given))
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
    """Turns ansible-runner's events into one `Told` a host."""

    def __init__(self, told: Callable[[Told], None]) -> None:
        self.told = told
        self.heard: set[str] = set()

    def hear(self, event: Mapping[str, Any]) -> bool:
        data = event.get("event_data", {})
        host, result = data.get("host"), data.get("res", {})
        kind = event.get("event")
        if host and kind == "runner_on_unreachable":
            self._tell(Told(host, wrong=_first_line(result.get("msg")), unreachable=True))
        elif host and kind in ("runner_on_ok", "runner_on_failed"):
            if "knobs" in result:
                self._tell(Told(host, result=result))
            elif kind == "runner_on_failed":
                self._tell(Told(host, wrong=_first_line(result.get("msg") or result.get("module_stderr"))))
        return False

    def _tell(self, told: Told) -> None:
        self.heard.add(told.host)
        self.told(told)


def _first_line(text: object) -> str:
    lines = [line.strip() for line in str(text or "").splitlines() if line.strip()]
    return lines[0] if lines else "it failed without a word"
