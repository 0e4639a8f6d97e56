"""Deep audit: DCGM's diagnosis on hosts that nobody uses. It goes on there if the connection is lost."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gpuctl.audit.formats import dcgm
from gpuctl.core.run_history import current_user
from gpuctl.core.text import plural
from gpuctl.domain.findings import Finding, Verdict, unknown
from gpuctl.hosts.fan_out import run_on_all
from gpuctl.hosts.model import HostResult, Target
from gpuctl.nccl.preflight import idle
from gpuctl.nccl.preflight.facts_file import Fleet

CHECK = "dcgm"
Send = Callable[..., Sequence[HostResult]]
AGAIN = "the same command goes on waiting, and reads the result"
LIMITS_S: Mapping[int, float] = {1: 900.0, 2: 3600.0, 3: 4 * 3600.0}  # of a diagnosis by its level
SHOWN_EVERY_S = 60.0
LOST_AFTER = 6  # times that a host did not answer


@dataclass(frozen=True)
class DeepOptions:
    """`level`: of DCGM's diagnosis, 1 to 3. `forks`: hosts at a time; `timeout_s` for one trip; `pause_s` between.

    `new`: results of diagnoses that ended before do not count.
    """

    level: int
    forks: int = 64
    timeout_s: float = 120.0
    pause_s: float = 5.0
    limit_s: float | None = None
    new: bool = False


@dataclass(frozen=True)
class Progress:
    """Hosts whose diagnosis runs, and those with a result; seconds since the command began to wait."""

    running: Sequence[str]
    done: Sequence[str]
    seconds: float


def once_a_minute(level: int, notify: Callable[[str], None]) -> Callable[[Progress], None]:
    """A receiver of progress that passes on a line for people at once, and then each minute."""
    shown = [-SHOWN_EVERY_S]

    def show(progress: Progress) -> None:
        if progress.seconds - shown[0] >= SHOWN_EVERY_S:
            shown[0] = progress.seconds
            running = plural(len(progress.running), "node")
            notify(
                f"dcgmi diag -r {level}: {len(progress.done)} done, running on {running} for {progress.seconds:.0f} s"
            )

    return show


@dataclass
class _Round:
    """State of all hosts between trips."""

    send: Send
    results: dict[str, dict[str, Any]] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    running: dict[str, Target] = field(default_factory=dict)
    silent: dict[str, int] = field(default_factory=dict)
    collected: dict[str, int] = field(default_factory=dict)


def diagnose(
    hosts: Sequence[Target],
    fleet: Fleet,
    options: DeepOptions,
    on_progress: Callable[[Progress], None],
    send: Send = run_on_all,
) -> tuple[Fleet, list[Finding]]:
    """The fleet with the results as subject "dcgm", and findings for hosts without one.

    A host that somebody uses is not disturbed: it is UNKNOWN, with its users. One whose diagnosis runs already, or has
    ended since an earlier call lost the connection, starts no second one.
    """
    state, started = _Round(send), time.monotonic()
    direct = {host.name: host for host in hosts if host.name in fleet.nodes and not host.needs_ansible}
    in_use = {name: users(name, fleet.nodes[name]) for name in direct}
    _trip(list(direct.values()), options, state, {name: not users for name, users in in_use.items()}, in_use)
    limit_s = LIMITS_S[options.level] if options.limit_s is None else options.limit_s
    while state.running:
        seconds = time.monotonic() - started
        on_progress(Progress(list(state.running), list(state.results), seconds))
        if seconds > limit_s:
            state.findings += [
                unknown(CHECK, name, f"it still runs after {seconds:.0f} s", AGAIN) for name in state.running
            ]
            break
        time.sleep(options.pause_s)
        _trip(list(state.running.values()), options, state, {}, {})
    if state.collected:
        _send([direct[name] for name in state.collected], options, state, {}, state.collected)
    nodes = {name: {**facts, **_as_subject(state.results.get(name))} for name, facts in fleet.nodes.items()}
    return replace(fleet, nodes=nodes), state.findings


def _as_subject(result: dict[str, Any] | None) -> dict[str, Any]:
    return {} if result is None else {CHECK: result}


def users(name: str, facts: Mapping[str, Any]) -> list[str]:
    """Reasons why a host must not be disturbed; what is not known of its use is one."""
    return [
        finding.message for finding in idle.idle({name: facts}) if finding.verdict not in {Verdict.OK, Verdict.WARN}
    ]


def _trip(
    hosts: Sequence[Target],
    options: DeepOptions,
    state: _Round,
    start: Mapping[str, bool],
    in_use: Mapping[str, Sequence[str]],
) -> None:
    """Ask every host once, and note its state."""
    targets = {host.name: host for host in hosts}
    for result in _send(hosts, options, state, start, {}):
        name = result.host
        if result.answer is None:
            _silent(state, targets[name], result)
            continue
        state.silent.pop(name, None)
        _note(state, targets[name], result.answer["diagnosis"], options.level, in_use.get(name, ()))


def _send(
    hosts: Sequence[Target],
    options: DeepOptions,
    state: _Round,
    start: Mapping[str, bool],
    collected: Mapping[str, int],
) -> Sequence[HostResult]:
    def request(host: Target) -> dict[str, Any]:
        common = {
            "action": "diagnose",
            "level": options.level,
            "start": start.get(host.name, False),
            "new": options.new,
        }
        return {**common, "collected": collected.get(host.name), "actor": current_user()}

    return state.send(hosts, request, forks=options.forks, timeout_s=options.timeout_s, on_result=lambda _: None)


def _silent(state: _Round, host: Target, result: HostResult) -> None:
    """A host that did not answer; one whose diagnosis runs may answer later."""
    times = state.silent[host.name] = state.silent.get(host.name, 0) + 1
    if host.name in state.running and times < LOST_AFTER:
        return
    runs = state.running.pop(host.name, None) is not None
    reason = f"the connection was lost while it ran: {result.wrong}" if runs else f"it was not started: {result.wrong}"
    state.findings.append(unknown(CHECK, host.name, reason, AGAIN if runs else result.hint))


def _note(state: _Round, host: Target, answer: Mapping[str, Any], level: int, users: Sequence[str]) -> None:
    name, kind = host.name, answer["state"]
    if kind == "running" and answer["level"] == level:
        state.running[name] = host
        return
    state.running.pop(name, None)
    if kind == "done" and answer["level"] == level:
        state.results[name] = _result(answer)
        state.collected[name] = answer["began"]
        return
    state.findings.append(_refusal(name, answer, users))


def _refusal(name: str, answer: Mapping[str, Any], users: Sequence[str]) -> Finding:
    """UNKNOWN for a host without a result, with the reason."""
    kind = answer["state"]
    if kind == "missing":
        return unknown(CHECK, name, "it has no dcgmi: DCGM is not installed", "gpuctl gpu-node plan lists the package")
    if kind == "running":
        minutes = max(0, answer["now"] - (answer["began"] or 0)) // 60
        message = f"a diagnosis of level {answer['level']} by {answer['by'] or 'somebody'} has run for {minutes} min"
        return unknown(CHECK, name, message, "wait for it to end")
    if kind == "lost":
        return unknown(CHECK, name, f"its diagnosis has no result: {answer['error']}", "run it again")
    reasons = [*answer["users"], *users]
    message = f"not diagnosed, as it is in use: {'; '.join(reasons)}" if reasons else "its diagnosis was not started"
    return unknown(CHECK, name, message, "drain it, and run the diagnosis once its jobs have ended")


def _result(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Facts of a diagnosis: those of its JSON, with the exit code; without JSON the reason."""
    empty: dict[str, Any] = {"version": None, "driver": None, "tests": [], "error": None, "notes": [], "unread": {}}
    record = dcgm.read_diag(answer["output"] or "")
    facts = {**empty, **record.facts.get(CHECK, {}), "exit_code": answer["code"]}
    if CHECK not in record.facts or record.findings:
        lines = [line for line in f"{answer['output'] or ''}\n{answer['error'] or ''}".splitlines() if line.strip()]
        last = lines[-1].strip()[:200] if lines else "nothing"
        facts["error"] = "its output is cut" if dcgm.is_diag(answer["output"] or "") else f"dcgmi printed {last}"
    return facts
