"""Requests to change hosts, hosts of an inventory, and the result of a run on one of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gpuctl.core.errors import InvalidInput

# The fields of a knob, in the engine's answer, that describe the state of its setting.
STATE_FIELDS = ("now", "boot", "state", "reason", "reboot")


@dataclass(frozen=True)
class RunOptions:
    """`via`: "ansible" or "ssh" for everything; None asks over ssh and changes through Ansible.

    `forks`: hosts at the same time. `timeout`: seconds for one host's answer. `batch`: hosts to change before the next
    ones start, "N" or "P%". `max_fail`: the run stops when more than this share of a batch failed, "P%".
    """

    via: str | None = None
    forks: int = 64
    timeout: float = 120.0
    batch: str = "100%"
    max_fail: str = "100%"


@dataclass(frozen=True)
class TuneRequest:
    """Tune hosts to their profiles, or with `check` only compare them.

    `inventory`: name or path; None for this machine. `limit`: a pattern as Ansible's --limit; "" for all hosts.
    `profile`: name or path; "" for the one in the inventory, else training.
    """

    inventory: str | None = None
    limit: str = ""
    profile: str = ""
    check: bool = False
    strict: bool = False
    allow_busy: bool = False
    reboot: bool = False
    run: RunOptions = field(default_factory=RunOptions)

    def __post_init__(self) -> None:
        if self.reboot and self.run.via == "ssh":
            wrong = "only Ansible waits for a host to come back"
            raise InvalidInput("reboot hosts over ssh alone", wrong, "leave out --via ssh")


@dataclass(frozen=True)
class RollbackRequest:
    """Restore the values that hosts had before gpuctl.

    `to`: only back to the state right after this record of the host. `only`: knobs or patterns; empty for all.
    `force`: also undo settings that somebody else has changed since.
    """

    inventory: str | None = None
    limit: str = ""
    to: str = ""
    only: Sequence[str] = ()
    check: bool = False
    force: bool = False
    allow_busy: bool = False
    run: RunOptions = field(default_factory=RunOptions)

    def __post_init__(self) -> None:
        if self.to and not self.to.isdigit():
            hint = "`gpuctl runs show RUN` lists the records of a run"
            raise InvalidInput(f"go back to the record {self.to!r}", "a record is a number, such as 000003", hint)


@dataclass(frozen=True)
class Target:
    """A host and its connection over ssh; empty fields follow the user's own ssh configuration.

    `needs_ansible`: why only Ansible can reach it; "" if ssh can. `profile`, `gpu_settings`, `kubelet_resources`,
    `slurm_gres`: host_profile_name and these variables as the inventory has them; "" and None if it has none.
    """

    name: str
    address: str = ""
    port: int | None = None
    user: str = ""
    key: str = ""
    ssh_args: tuple[str, ...] = ()
    become: bool = False
    become_user: str = "root"
    python: str = ""
    local: bool = False
    profile: str = ""
    needs_ansible: str = ""
    gpu_settings: Any = field(default=None, compare=False)
    kubelet_resources: Any = field(default=None, compare=False)
    slurm_gres: Any = field(default=None, compare=False)


@dataclass(frozen=True)
class HostResult:
    """The answer of one host, or the reason why there is none.

    `answer`: the engine's (gpuhost.api). `wrong` and `hint`: why there is no answer, or what failed after it.
    `unreachable`: the login failed, unlike on a host that cannot do what was requested (no root, another run active).
    """

    host: str
    answer: Mapping[str, Any] | None = None
    wrong: str = ""
    hint: str = ""
    unreachable: bool = False
    seconds: float = 0.0

    @property
    def knobs(self) -> list[Mapping[str, Any]]:
        return list(self.answer["knobs"]) if self.answer and "knobs" in self.answer else []

    @property
    def differs(self) -> bool:
        """True if a run would change a setting of this host."""
        return any(knob["state"] == "differs" for knob in self.knobs)

    @property
    def changed(self) -> bool:
        return any(knob["changed"] for knob in self.knobs)

    def after_reboot(self, later: HostResult) -> HostResult:
        """The changes of this result with the state of the settings in a later one."""
        if later.answer is None:
            return replace(self, wrong=later.wrong, hint=later.hint, unreachable=later.unreachable)
        states = {knob["knob"]: {name: knob[name] for name in STATE_FIELDS} for knob in later.knobs}
        knobs = [{**knob, **states.get(knob["knob"], {})} for knob in self.knobs]
        return replace(self, answer={**(self.answer or {}), "knobs": knobs})
