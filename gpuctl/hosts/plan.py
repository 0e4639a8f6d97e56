"""Turn a request into a plan: its hosts, their compiled profiles, and the job to do on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gpuctl.core import run_history
from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.core.run_history import RunRecord
from gpuctl.edges import inventory_cache
from gpuctl.hosts import flow, inventory, inventory_settings, judge, profiles
from gpuctl.hosts.flow import Job
from gpuctl.hosts.model import HostResult, RollbackRequest, RunOptions, Target, TuneRequest

ROLE = "host_profile"  # the group whose hosts are tuned, if the inventory has it


@dataclass(frozen=True)
class Plan:
    """A job with its hosts. `source`: the inventory's path; `reasons`: knob -> why its profile sets it."""

    source: Path
    hosts: Sequence[Target]
    job: Job
    options: RunOptions
    reasons: Mapping[str, str] = field(default_factory=dict)

    @property
    def inventory(self) -> str:
        """The inventory as reports name it: by name if it has one, else by path."""
        return self.source.name if self.source.parent.name == "inventories" else str(self.source)

    def run(self, listener: flow.Listener) -> list[HostResult]:
        """Carry out the job; return the results in the order of the hosts."""
        return flow.run(self.source, self.hosts, self.job, self.options, listener)


def plan(request: TuneRequest | RollbackRequest) -> Plan:
    """Resolve the hosts and compile their profiles; `InvalidInput` with every mistake in them.

    `GpuctlError` if hosts are to be changed and the run cannot be recorded.
    """
    if not request.check:
        check_run_history()
    return _plan_tune(request) if isinstance(request, TuneRequest) else _plan_rollback(request)


def _plan_tune(request: TuneRequest) -> Plan:
    source = find_inventory(request.inventory)
    hosts = targets(source, request.limit, ROLE)
    compiled = _compiled_profiles(hosts, request.profile)
    for name in inventory_settings.NAMES:
        for host, knobs in inventory_settings.compiled(name, hosts, source).items():
            compiled[host] = {**compiled[host], name: knobs}
    job = flow.tune(
        compiled,
        check=request.check,
        allow_busy=request.allow_busy,
        strict=request.strict,
        reboot=request.reboot,
    )
    return Plan(source, hosts, job, request.run, _reasons(compiled))


def _plan_rollback(request: RollbackRequest) -> Plan:
    source = find_inventory(request.inventory)
    hosts = targets(source, request.limit)
    job = flow.rollback(
        check=request.check,
        to=request.to and f"{int(request.to):06d}",
        only=request.only,
        force=request.force,
        allow_busy=request.allow_busy,
    )
    return Plan(source, hosts, job, request.run)


def capture(name: str | None, host: str, date: str) -> str:
    """Read one host of an inventory; return the text of a profile with its settings."""
    hosts = targets(find_inventory(name), host)
    if len(hosts) != 1:
        raise InvalidInput(f"capture {host!r}", f"it names {len(hosts)} hosts", "choose one")
    if hosts[0].needs_ansible:
        wrong = f"only Ansible can reach it: {hosts[0].needs_ansible}"
        raise GpuctlError(f"capture {host}", wrong, "capture needs a direct ssh login")
    result, text = flow.capture(hosts[0], date)
    if result.answer is None:
        raise GpuctlError(f"capture {host}", result.wrong, result.hint)
    return text


def find_inventory(name: str | None) -> Path:
    """The inventory of a name or path; None for the one of this machine alone."""
    return inventory.find(inventory.DEFAULT if name is None else name)


def targets(source: Path, limit: str = "", group: str = "") -> list[Target]:
    """Hosts of an inventory that match a pattern; without a pattern those of the group, or all if it has none."""
    hosts = inventory_cache.read(source, limit)
    members = {name for name, variables in hosts.items() if group and group in variables["group_names"]}
    selected = hosts if limit or not members else members
    return [inventory.target(name, variables) for name, variables in hosts.items() if name in selected]


def save_run(run: RunRecord, code: int | None, results: Sequence[HostResult], unfinished: Sequence[str]) -> str:
    """Write a run to the history and return its name; "" if no host was reached. OSError if it cannot be written.

    `code`: None while it runs. `unfinished`: hosts whose change was started and whose end is unknown.
    """
    hosts = {result.host: judge.as_dict(result) for result in results}
    for host in unfinished:
        hosts[host] = {**hosts.get(host, {"host": host}), "status": "unfinished"}
    if not hosts:
        return ""
    run_history.save(replace(run, exit_code=code, hosts=hosts))
    return run.name


def check_run_history() -> None:
    """Refuse to change hosts if the run cannot be recorded."""
    try:
        run_history.folder()
    except OSError as error:
        raise unrecorded(error) from error


def unrecorded(error: OSError) -> GpuctlError:
    """The error of a run that cannot be recorded."""
    hint = "make that folder writable, or name another one with GPUCTL_STATE_DIR"
    return GpuctlError("keep a record of this run", str(error), hint)


def _compiled_profiles(hosts: Sequence[Target], requested: str) -> dict[str, Mapping[str, Any]]:
    """Host -> compiled profile: the requested one, else the one in the inventory, else training."""
    from gpuctl import engine

    for host in hosts:
        if not requested and "{" in host.profile:  # a template, or a whole profile: only the role can resolve it
            doing = f"choose the profile of {host.name}"
            raise InvalidInput(doing, "host_profile_name in the inventory is not a plain name", "pass --profile")
    names = {host.name: requested or host.profile or "training" for host in hosts}
    compiled = {name: dict(engine.profiles.compiled(profiles.load(name))) for name in dict.fromkeys(names.values())}
    return {host: compiled[name] for host, name in names.items()}


def _reasons(compiled: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Knob -> reason. If profiles give different ones, the first; `gpuctl profile explain` prints all."""
    reasons: dict[str, str] = {}
    for profile in {profile["name"]: profile for profile in compiled.values()}.values():
        for row in [*profile["knobs"], *(row for overlay in profile["overlays"] for row in overlay["knobs"])]:
            reasons.setdefault(row["name"], row["why"])
    for profile in compiled.values():
        for row in (row for name in inventory_settings.NAMES for row in profile.get(name, ())):
            reasons.setdefault(row["name"], row["why"])
    return reasons
