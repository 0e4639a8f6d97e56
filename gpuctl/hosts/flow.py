"""Run a job on hosts: ask all of them first, then change only those that differ."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

from gpuctl.core.run_history import current_user
from gpuctl.core.signals import ctrl_c
from gpuctl.edges import ansible, ssh
from gpuctl.engine import answers, needs_reboot, printable, visit_failures
from gpuctl.hosts.fan_out import OnResult, OpenVisits, answered, run_on_all
from gpuctl.hosts.judge import exit_code
from gpuctl.hosts.model import HostResult, RunOptions, Target

# A change may take longer than a question: packages, swap read back from disk, a new boot configuration.
CHANGE_FACTOR = 10
# The role's check of its variables, which are gpuctl's own here ("always"), and its reboot.
REBOOT_TAGS = ("always", "host_profile_reboot")
Item = TypeVar("Item")


@dataclass(frozen=True)
class Job:
    """Work to do on each host: the engine's request for ssh, and the playbook that does the same through Ansible.

    `profiles`: host -> its compiled profile, for jobs about profiles. `reboot`: reboot hosts whose settings need it.
    `skip_tags`: of tasks of the playbook that changes without a reboot do not need.
    """

    request: Mapping[str, Any]
    playbook: str
    variables: Mapping[str, Any]
    check: bool = False
    profiles: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    reboot: bool = False
    strict: bool = False
    skip_tags: Sequence[str] = ()

    def request_of(self, host: Target) -> dict[str, Any]:
        profile = {"profile": self.profiles[host.name]} if self.profiles else {}
        return {**self.request, **profile, "check": self.check}


def tune(
    profiles: Mapping[str, Mapping[str, Any]],
    *,
    check: bool,
    allow_busy: bool = False,
    strict: bool = False,
    reboot: bool = False,
) -> Job:
    """Tune each host to its compiled profile."""
    actor = current_user()
    request = {"action": "tune", "scope": "profile", "allow_busy": allow_busy, "actor": actor}
    variables = {
        "host_profile_allow_busy": allow_busy,
        "host_profile_strict": strict,
        "host_profile_actor": actor,
        "host_profile_reboot": False,  # overrides the inventory: reboots are a separate job, host by host
        "host_profile_hosts": "all",
    }
    return Job(request, "gpuctl.fleet.tune_nodes", variables, check, profiles, reboot, strict, REBOOT_TAGS)


def rollback(
    *, check: bool, to: str = "", only: Sequence[str] = (), force: bool = False, allow_busy: bool = False
) -> Job:
    """Restore the values that hosts had before gpuctl; `to`: the number of a record, `only`: knobs or patterns."""
    options = {"to": to, "only": list(only), "force": force, "allow_busy": allow_busy, "actor": current_user()}
    variables = {f"host_rollback_{name}": value for name, value in options.items()}
    return Job({"action": "undo", "scope": "", **options}, "gpuctl.fleet.rollback", variables, check)


def capture(host: Target, date: str, timeout_s: float = 120) -> tuple[HostResult, str]:
    """Read every setting that a shipped profile has from one host; return the result and the text of a profile."""
    from gpuctl.engine import profiles

    job = tune({host.name: profiles.compiled(profiles.questions())}, check=True)
    request = {**job.request_of(host), "scope": "capture"}
    (result,) = run_on_all([host], lambda _: request, forks=1, timeout_s=timeout_s, on_result=lambda _: None)
    return result, profiles.captured(result.knobs, host.name, date) if result.answer else ""


class Change(Protocol):
    """Changes the hosts of a batch; returns their results in its order."""

    def __call__(
        self, source: Path, batch: Sequence[Target], job: Job, options: RunOptions, on_result: OnResult, /
    ) -> list[HostResult]: ...


class Listener(Protocol):
    """Receives the progress of a run."""

    def on_result(self, result: HostResult) -> None:
        """Receive a result; of several for one host the last one counts."""

    def on_change(self, hosts: Iterable[str]) -> None:
        """Receive the hosts whose change starts now."""


def run(source: Path, hosts: Sequence[Target], job: Job, options: RunOptions, listener: Listener) -> list[HostResult]:
    """Ask every host, then change those that differ; return the results in the order of the hosts."""
    direct = [h for h in hosts if options.via != "ansible" and not h.needs_ansible]
    if not _stays_connected(direct, job, options):
        results = {result.host: result for result in _ask(direct, job, options, listener.on_result)}
        change = _over_ssh if options.via == "ssh" else _through_ansible
        return _changed(source, hosts, job, options, listener, results, change)
    with OpenVisits(direct, replace(job, check=True).request_of, options.timeout) as visits:
        results = {result.host: result for result in visits.compare(listener.on_result)}

        def change_open(_source: Path, batch: Sequence[Target], *_: Any) -> list[HostResult]:
            return visits.change(batch, options.timeout * CHANGE_FACTOR, listener.on_result)

        return _changed(source, hosts, job, options, listener, results, change_open)


def _stays_connected(direct: Sequence[Target], job: Job, options: RunOptions) -> bool:
    """True if hosts are changed over the connections that compare them: all at once, and within the limit of forks."""
    at_once = len(list(batches(direct, options.batch))) == 1
    return options.via == "ssh" and not job.check and at_once and len(direct) <= options.forks


def _changed(  # noqa: PLR0913, PLR0917 - the second half of `run`
    source: Path,
    hosts: Sequence[Target],
    job: Job,
    options: RunOptions,
    listener: Listener,
    results: dict[str, HostResult],
    change: Change,
) -> list[HostResult]:
    """Change the hosts that differ, and those that only Ansible reaches. `results`: of the hosts that were asked."""
    asked, on_result = set(results), listener.on_result
    beyond = [h for h in hosts if options.via == "ssh" and h.needs_ansible]
    for host in beyond:
        wrong = f"only Ansible can reach it: {host.needs_ansible}"
        results[host.name] = HostResult(host.name, wrong=wrong, hint="leave out --via ssh", unreachable=True)
        on_result(results[host.name])
    due = [h for h in hosts if h.name not in results or (h.name in asked and results[h.name].differs and not job.check)]
    for result in _change_in_batches(source, due, job, options, listener, change):
        results[result.host] = result
    waiting = [h for h in hosts if job.reboot and not job.check and needs_reboot(results[h.name].knobs)]
    for result in _reboot_in_turn(source, waiting, job, options, _merge_changes(results, on_result)):
        results[result.host] = results[result.host].after_reboot(result)
    return [results[h.name] for h in hosts]


def _merge_changes(results: Mapping[str, HostResult], on_result: OnResult) -> OnResult:
    """Report a result after a reboot together with the changes before it."""
    return lambda result: on_result(results[result.host].after_reboot(result))


def _ask(direct: Sequence[Target], job: Job, options: RunOptions, on_result: OnResult) -> list[HostResult]:
    if not direct:
        return []
    request_of = replace(job, check=True).request_of
    return run_on_all(direct, request_of, forks=options.forks, timeout_s=options.timeout, on_result=on_result)


def _change_in_batches(  # noqa: PLR0913, PLR0917 - as `_changed`
    source: Path, due: Sequence[Target], job: Job, options: RunOptions, listener: Listener, change: Change
) -> Iterator[HostResult]:
    """Change batch after batch; when too many hosts of one have failed, the others are not started."""
    stopped = ""
    for batch in batches(due, options.batch):
        if stopped:
            hint = "look at the failed hosts, then repeat the command"
            yield from (HostResult(host.name, wrong=stopped, hint=hint) for host in batch)
            continue
        listener.on_change([] if job.check else [host.name for host in batch])
        results = change(source, batch, job, options, listener.on_result)
        yield from (_with_unknown_outcome(result) for result in results)
        failed = sum(exit_code([result], strict=job.strict) != 0 for result in results)
        if too_many(failed, len(batch), options.max_fail):
            failures = f"{failed} of {len(batch)} hosts of an earlier batch failed"
            stopped = f"not started: {failures}, more than {options.max_fail}"


def _with_unknown_outcome(result: HostResult) -> HostResult:
    """A host that stopped answering during a change finishes the change by itself, if it is up."""
    if not result.wrong.startswith((ssh.NO_ANSWER, ssh.LOST, visit_failures.TOO_MUCH_OUTPUT)):
        return result
    finishes = "a host that is up finishes a change that it has started: `gpuctl drift` shows its state"
    return replace(result, hint=f"{result.hint}; {finishes}" if result.hint else finishes)


def _reboot_in_turn(
    source: Path, waiting: Sequence[Target], job: Job, options: RunOptions, on_result: OnResult
) -> Iterator[HostResult]:
    """Reboot host by host; stop at one that does not come back, as the others may fail for the same reason."""
    lost = ""
    with_reboot = replace(job, skip_tags=(), variables={**job.variables, "host_profile_reboot": True})
    for host in waiting:
        if lost:
            wrong = f"not rebooted, because {lost} did not come back"
            yield HostResult(host.name, wrong=wrong, hint=f"look at {lost}")
            continue
        (result,) = _through_ansible(source, [host], with_reboot, options, on_result)
        yield result
        lost = host.name if result.unreachable else ""


def _over_ssh(
    _source: Path, batch: Sequence[Target], job: Job, options: RunOptions, on_result: OnResult
) -> list[HostResult]:
    timeout_s = options.timeout * CHANGE_FACTOR
    return run_on_all(batch, job.request_of, forks=options.forks, timeout_s=timeout_s, on_result=on_result)


def _through_ansible(
    source: Path, batch: Sequence[Target], job: Job, options: RunOptions, on_result: OnResult
) -> list[HostResult]:
    results: dict[str, HostResult] = {}
    requests = {host.name: job.request_of(host) for host in batch}

    def collect(result: ansible.HostResult) -> None:
        results[result.host] = _result(result, requests[result.host])
        on_result(results[result.host])

    names = [host.name for host in batch]
    texts = {name: json.dumps(job.profiles[name]) for name in names} if job.profiles else {}
    # As files: Ansible would take braces in a variable's text for a template.
    file_of = {text: f"{number}.compiled.json" for number, text in enumerate(dict.fromkeys(texts.values()))}
    files, by_host = {file: text for text, file in file_of.items()}, {name: file_of[t] for name, t in texts.items()}
    timeout_s = int(options.timeout * CHANGE_FACTOR)
    play = ansible.Play(
        job.playbook,
        source,
        names,
        job.variables,
        files,
        by_host,
        options.forks,
        timeout_s,
        job.check,
        job.skip_tags,
    )
    with ctrl_c() as interrupted:
        error = ansible.run(play, collect, interrupted)
    if interrupted():
        raise KeyboardInterrupt
    missing = error or "Ansible ended before it reached this host"
    return [results.get(name, HostResult(name, wrong=missing)) for name in names]


def _result(result: ansible.HostResult, request: Mapping[str, Any]) -> HostResult:
    if result.result is not None:
        try:
            return answered(result.host, answers.checked(dict(result.result), request))
        except answers.BadAnswer as error:
            return HostResult(result.host, wrong=str(error), hint=ssh.LOOK)
    if not result.unreachable:
        return HostResult(result.host, None, printable(result.wrong), result.hint)
    gist = result.wrong.rpartition("\n")[2].rpartition("over ssh: ")[2].strip()
    failure = ssh.known_failure(result.wrong, gist, result.host) or ssh.Failure(gist, ssh.LOOK)
    return HostResult(result.host, None, printable(failure.wrong), failure.hint, unreachable=True)


def too_many(failed: int, size: int, max_fail: str) -> bool:
    """True if more hosts of a batch failed than `max_fail` ("P%") allows."""
    return failed * 100 > int(max_fail.rstrip("%")) * size


def batches(hosts: Sequence[Item], size: str) -> Iterator[Sequence[Item]]:
    """Split hosts into groups of "N" or "P%", at least one host each."""
    count = max(1, len(hosts) * int(size[:-1]) // 100 if size.endswith("%") else int(size))
    return (hosts[i : i + count] for i in range(0, len(hosts), count))
