"""Progress and report of a run over hosts."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

import click

from gpuctl.cli.shared import findings, output
from gpuctl.cli.shared.report import Form, publish
from gpuctl.domain.report import Report
from gpuctl.hosts import judge
from gpuctl.hosts.judge import as_dict, status
from gpuctl.hosts.model import HostResult


@dataclass(frozen=True)
class ReportOptions:
    """Output options of a run over hosts. `drift`: a difference is a problem. `reasons`: knob -> why it is set."""

    form: Form
    metrics: Path | None
    command: str
    check: bool = False
    diff: bool = False
    strict: bool = False
    drift: bool = False
    reasons: Mapping[str, str] = field(default_factory=dict)


class Progress:
    """Shows results as hosts answer: in a live table on a terminal, else one line for each.

    `before_change` is called each time that hosts are about to be changed.
    """

    def __init__(self, hosts: Sequence[str], before_change: Callable[[Progress], None], *, strict: bool) -> None:
        self.hosts, self.strict, self._before_change = hosts, strict, before_change
        self.started = time.monotonic()
        self._results: dict[str, HostResult] = {}
        self._changes: dict[str, bool] = {}  # host whose change was started -> True once its result arrived
        self._live: Any = None

    @property
    def results(self) -> list[HostResult]:
        """The last result of each host that has one, in the inventory's order."""
        return [self._results[host] for host in self.hosts if host in self._results]

    @property
    def unfinished(self) -> list[str]:
        """Hosts whose change was started and whose result has not arrived."""
        return [host for host, finished in self._changes.items() if not finished]

    def on_change(self, hosts: Iterable[str]) -> None:
        """Note hosts whose change starts now."""
        self._changes.update(dict.fromkeys(hosts, False))
        if self.unfinished:
            self._before_change(self)

    def __enter__(self) -> Progress:
        if output.on_terminal():
            from gpuctl.cli.hosts.live_table import LiveTable

            self._live = LiveTable(self.hosts, strict=self.strict, describe=partial(line, strict=self.strict))
            self._live.start()
        return self

    def on_result(self, result: HostResult) -> None:
        """Store a result and show it."""
        self._results[result.host] = result
        if result.host in self._changes:
            self._changes[result.host] = True
        if self._live is not None:
            self._live.update(result)
        else:
            seconds = time.monotonic() - self.started
            with contextlib.suppress(OSError):  # standard error is not read any more: the run continues
                click.echo(f"[{seconds:6.1f} s] {result.host}: {line(result, strict=self.strict)}", err=True)

    def finish(self, results: Iterable[HostResult]) -> None:
        """Store the final results without showing them again."""
        self._results.update((result.host, result) for result in results)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()
        if isinstance(error, KeyboardInterrupt):
            self._summarise_interruption()

    def _summarise_interruption(self) -> None:
        unfinished = self.unfinished
        results = [result for result in self.results if result.host not in unfinished]
        done = [result.host for result in results if result.answer is not None and not result.differs]
        left = [host for host in self.hosts if host not in done and host not in unfinished]
        for label, hosts in (("done", done), ("started, outcome unknown", unfinished), ("not started", left)):
            click.echo(f"{label}: {output.names(hosts, 64) or 'none'}", err=True)
        if unfinished:
            click.echo("hosts finish a change that they have started; `gpuctl drift` shows their state", err=True)


def line(result: HostResult, *, strict: bool) -> str:
    """Status of one host with its counts of settings, and what is wrong."""
    return f"{status(result, strict=strict)}{_counts(result)}" + (f": {result.wrong}" if result.wrong else "")


def _counts(result: HostResult) -> str:
    changed = sum(bool(k["changed"]) for k in result.knobs)
    differ = sum(k["state"] == "differs" for k in result.knobs)
    parts = [f"{output.plural(changed, 'setting')} changed"] if changed else []
    parts += [f"{output.plural(differ, 'setting')} to change"] if differ else []
    return f" ({', '.join(parts)})" if parts else ""


def show(results: Sequence[HostResult], shown: ReportOptions, run: str, inventory: str, code: int) -> None:
    """Publish the report of a run in the requested form."""
    settings = [
        finding for result in results for finding in judge.findings(result, strict=shown.strict, drift=shown.drift)
    ]
    hosts = [as_dict(result, strict=shown.strict) for result in results]
    details = {"check": shown.check, "run": run or None, "hosts": hosts}
    report = Report(shown.command, {inventory: settings}, details, code=code)
    publish(report, shown.form, shown.metrics, lambda: _table(results, shown, run))


def _table(results: Sequence[HostResult], shown: ReportOptions, run: str) -> None:
    _changes(results, shown.reasons, diff=shown.diff)
    problems = [
        finding for result in results for finding in judge.problems(result, strict=shown.strict, drift=shown.drift)
    ]
    findings.show(problems)
    if problems:
        click.echo()
    output.table(
        (
            "HOST",
            "STATUS",
            "OK",
            "TO CHANGE" if shown.check else "CHANGED",
            "UNSUPPORTED",
            "PROBLEMS",
            "NOTE",
        ),
        [_row(result, strict=shown.strict, check=shown.check) for result in results],
    )
    statuses = [status(result, strict=shown.strict) for result in results]
    summary = ", ".join(f"{statuses.count(text)} {text}" for text in dict.fromkeys(statuses))
    profiles = dict.fromkeys(r.answer["profile"] for r in results if r.answer and r.answer.get("profile"))
    summary += f"; profile {' and '.join(profiles)}" if profiles else ""
    click.echo(f"\n{output.plural(len(results), 'host')}: {summary}" + (f"; run {run}" if run else ""))


def _row(result: HostResult, *, strict: bool, check: bool) -> tuple[object, ...]:
    if result.answer is None:
        return (
            result.host,
            status(result, strict=strict),
            "-",
            "-",
            "-",
            "-",
            _wrong(result),
        )
    states = [knob["state"] for knob in result.knobs]
    changed = states.count("differs") if check else sum(bool(k["changed"]) for k in result.knobs)
    bad = sum(s in ("refused", "unknown", "failed", "contested", "conflict") for s in states)
    notes = [f"record {result.answer['record']}"] if result.answer.get("record") else []
    notes += ["busy"] if result.answer.get("busy") else []
    notes += ["its disk is read-only: nothing can be changed"] if result.answer.get("read_only") else []
    notes += [_wrong(result)] if result.wrong else []
    fine = sum(s in ("ok", "pending") for s in states)
    return (
        result.host,
        status(result, strict=strict),
        fine,
        changed,
        states.count("unsupported"),
        bad,
        ", ".join(notes),
    )


def _wrong(result: HostResult) -> str:
    return f"{result.wrong}; {result.hint}" if result.hint else result.wrong


def _changes(results: Sequence[HostResult], reasons: Mapping[str, str], *, diff: bool) -> None:
    """Print the changes, once for all hosts that share them."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for result in results:
        lines = tuple(_change(k, reasons, diff=diff) for k in result.knobs if k["changed"] or k["state"] == "differs")
        if lines:
            groups.setdefault(lines, []).append(result.host)
    for lines, hosts in groups.items():
        click.echo(f"{output.names(hosts)}:")
        for text in lines:
            click.echo(text)
        click.echo()


def _change(knob: Mapping[str, Any], reasons: Mapping[str, str], *, diff: bool) -> str:
    was = knob.get("was") or knob
    before = ("was " if "was" in knob else "") + judge.describe_values(was["now"], was["boot"])
    text = f"  {knob['knob']}: {before} -> {_goal(knob, was)}"
    text += "".join(f"\n      note: {note}" for note in knob["notes"])
    if not diff:
        return text
    steps = [f"\n      {_place(s['setting'])}\n        - {s['before']}\n        + {s['after']}" for s in knob["steps"]]
    return text + (f"\n      why: {reasons[knob['knob']]}" if knob["knob"] in reasons else "") + "".join(steps)


def _goal(knob: Mapping[str, Any], was: Mapping[str, Any]) -> str:
    if not knob["restores"]:
        kept = was["now"] == knob["desired"] and was["boot"] not in (None, knob["desired"])
        return f"{knob['desired']}, after a reboot too" if kept else str(knob["desired"])
    values = dict.fromkeys(s["after"] for s in knob["steps"] if s["setting"].startswith("value:"))
    return f"back to {next(iter(values))}" if len(values) == 1 else "back to what it was"


def _place(setting: str) -> str:
    """Readable name of a setting: /proc/sys/vm/swappiness, or "vm.swappiness in /etc/sysctl.d/…"."""
    kind, _, rest = setting.partition(":")
    if kind in ("line", "comment"):
        path, _, key = rest.partition(":")
        return f"{key} in {path}"
    return rest if kind in ("value", "file") else f"{kind} {rest}"
