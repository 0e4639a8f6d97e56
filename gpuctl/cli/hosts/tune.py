"""tune-nodes, drift, rollback."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuctl.cli.errors import INTERRUPTED, OutputUnread
from gpuctl.cli.shared import options
from gpuctl.cli.shared.report import Form, check_folder, report_options
from gpuctl.core.errors import GpuctlError, InvalidInput

if TYPE_CHECKING:
    from gpuctl.hosts.flow import Job, Way
    from gpuctl.hosts.model import Target


ROLE = "host_profile"  # the group whose hosts are tuned, where an inventory has it


@dataclass(frozen=True)
class Shown:
    """How a run's result is judged and printed."""

    form: Form
    metrics: Path | None
    command: str
    check: bool = False
    diff: bool = False
    strict: bool = False
    drift: bool = False
    why: Mapping[str, str] = field(default_factory=dict)


@click.command("tune-nodes")
@options.inventory
@options.profile
@options.limit
@options.check
@options.diff
@options.strict
@options.allow_busy
@click.option("--reboot", is_flag=True, help="Reboot hosts that need it, one after the other.")
@options.batches
@options.carrier
@options.yes
@report_options
def tune_nodes(
    inventory: str | None,
    profile: str,
    limit: str,
    check: bool,
    diff: bool,
    strict: bool,
    allow_busy: bool,
    reboot: bool,
    yes: bool,
    form: Form,
    metrics: Path | None,
    **way: Any,
) -> None:
    """Tune hosts to a profile: change only what differs, and keep a record to undo it by."""
    from gpuctl.hosts import flow

    if reboot and way["via"] == "ssh":
        hint = "leave out --via ssh"
        raise InvalidInput("reboot over the direct carrier", "waiting for a host to come back is Ansible's part", hint)
    if not check:
        _ask_about_this_machine(inventory, yes)
        _prove_that_records_can_be_kept()
    source, hosts = _hosts(inventory, limit, ROLE)
    profiles = _profiles(hosts, profile)
    job = flow.tune(profiles, check=check, allow_busy=allow_busy, strict=strict, reboot=reboot)
    _run(source, hosts, job, _way(**way), Shown(form, metrics, "tune-nodes", check, diff, strict, why=_why(profiles)))


@click.command()
@options.inventory
@options.profile
@options.limit
@options.diff
@options.strict
@options.carrier
@report_options
def drift(
    inventory: str | None,
    profile: str,
    limit: str,
    diff: bool,
    strict: bool,
    form: Form,
    metrics: Path | None,
    **way: Any,
) -> None:
    """Compare hosts with a profile and change nothing; exit 1 where a host differs."""
    from gpuctl.hosts import flow

    source, hosts = _hosts(inventory, limit, ROLE)
    profiles = _profiles(hosts, profile)
    job = flow.tune(profiles, check=True, strict=strict)
    _run(
        source,
        hosts,
        job,
        _way(**way),
        Shown(form, metrics, "drift", True, diff, strict, drift=True, why=_why(profiles)),
    )


@click.command()
@options.inventory
@options.limit
@click.option("--to", metavar="RECORD", default="", help="Go back only to the state right after this record of a host.")
@click.option("--only", metavar="KNOB", multiple=True, help="Only this setting, or pattern; may be given again.")
@options.check
@options.diff
@click.option("--force", is_flag=True, help="Take back what somebody else has changed since, too.")
@options.allow_busy
@options.batches
@options.carrier
@options.yes
@report_options
def rollback(
    inventory: str | None,
    limit: str,
    to: str,
    only: tuple[str, ...],
    check: bool,
    diff: bool,
    force: bool,
    allow_busy: bool,
    yes: bool,
    form: Form,
    metrics: Path | None,
    **way: Any,
) -> None:
    """Put hosts back to what they were before gpuctl, from the record that each host keeps."""
    from gpuctl.hosts import flow

    if not check:
        _ask_about_this_machine(inventory, yes)
        _prove_that_records_can_be_kept()
    source, hosts = _hosts(inventory, limit)
    if to and not to.isdigit():
        raise InvalidInput(f"go back to the record {to!r}", "a record is a number, such as 000003", "a run names them")
    job = flow.rollback(check=check, to=to and f"{int(to):06d}", only=only, force=force, allow_busy=allow_busy)
    _run(source, hosts, job, _way(**way), Shown(form, metrics, "rollback", check, diff))


def _hosts(inventory: str | None, limit: str, group: str = "") -> tuple[Path, list[Target]]:
    from gpuctl.hosts import flow
    from gpuctl.hosts.inventory import DEFAULT, find

    source = find(DEFAULT if inventory is None else inventory)
    return source, flow.targets(source, limit, group)


def _profiles(hosts: list[Target], asked: str) -> dict[str, dict[str, Any]]:
    """Each host's compiled profile: the one asked for, else what its inventory says, else training."""
    from gpuctl.cli.hosts.profile import load
    from gpuctl.engine import profiles

    for host in hosts:
        if not asked and "{" in host.profile:  # a template, or a whole profile: the role alone knows what to do with it
            doing = f"choose the profile of {host.name}"
            raise InvalidInput(doing, "host_profile_name is no plain name in the inventory", "give --profile")
    names = {host.name: asked or host.profile or "training" for host in hosts}
    compiled = {name: dict(profiles.compiled(load(name))) for name in dict.fromkeys(names.values())}
    return {host: compiled[name] for host, name in names.items()}


def _why(profiles: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Each knob's reason. Where profiles give different ones, the first is shown: `profile explain` has them all."""
    found: dict[str, str] = {}
    for compiled in {profile["name"]: profile for profile in profiles.values()}.values():
        for row in [*compiled["knobs"], *(r for overlay in compiled["overlays"] for r in overlay["knobs"])]:
            found.setdefault(row["name"], row["why"])
    return found


def _way(forks: int, timeout: float, via: str | None, batch: str = "100%", max_fail: str = "100%") -> Way:
    from gpuctl.hosts.flow import Way

    return Way(via=via or "", forks=forks, limit=timeout, batch=batch, max_fail=int(max_fail.rstrip("%")))


def _run(source: Path, hosts: list[Target], job: Job, way: Way, shown: Shown) -> None:
    """Do the job on the hosts, keep a record of it and print what it came to."""
    from gpuctl.cli.hosts.report import Progress, show
    from gpuctl.hosts import flow, judge

    check_folder(shown.metrics)
    run = ""
    with Progress([host.name for host in hosts], shown.strict) as progress:
        try:
            for visit in flow.run(source, hosts, job, way, progress):
                progress.settle(visit)
        finally:
            if not job.check:
                run = _keep(progress, shown)
    code = judge.exit_code(progress.visits, shown.strict, shown.drift)
    try:
        show(progress.visits, shown, run, _name(source), code)
    except BrokenPipeError as error:  # the reader of our output has gone: what the hosts came to is still told
        raise OutputUnread(code) from error
    raise click.exceptions.Exit(code)


def _name(source: Path) -> str:
    """An inventory as reports call it: by its name if it has one, else by its path."""
    return source.name if source.parent.name == "inventories" else str(source)


def _keep(progress: Any, shown: Shown) -> str:
    """The record of a run, also of one that was broken off."""
    from gpuctl.core import run_history
    from gpuctl.hosts import judge

    told = {visit.host: judge.told(visit, shown.strict) for visit in progress.visits}
    for host in progress.not_seen_to_the_end:
        told[host] = {**told.get(host, {"host": host}), "status": "begun"}
    broken_off = isinstance(sys.exception(), KeyboardInterrupt)
    code = INTERRUPTED if broken_off else judge.exit_code(progress.visits, shown.strict)
    try:
        return run_history.save(sys.argv[1:], code, told).name if told else ""
    except OSError as error:  # what the hosts came to is the more important of the two
        click.echo(f"gpuctl: no record of this run: {error}", err=True)
        return ""


def _prove_that_records_can_be_kept() -> None:
    from gpuctl.core import run_history

    try:
        run_history.folder()
    except OSError as error:
        hint = "see to that folder, or name another one with GPUCTL_STATE_DIR"
        raise GpuctlError("keep a record of this run", str(error), hint) from error


def _ask_about_this_machine(inventory: str | None, yes: bool) -> None:
    """Whoever names no inventory may have forgotten it."""
    if yes or inventory is not None:
        return
    if not sys.stdin.isatty():
        raise InvalidInput("change this machine", "nobody is there to be asked", "add --yes, or name an inventory")
    click.confirm("No --inventory: change this machine?", abort=True)
