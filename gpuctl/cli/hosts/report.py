"""The progress and the result of a run over hosts."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

import click

from gpuctl.cli.shared import output
from gpuctl.cli.shared.report import publish
from gpuctl.domain.report import Report
from gpuctl.hosts import judge
from gpuctl.hosts.judge import status, told
from gpuctl.hosts.model import Visit

if TYPE_CHECKING:
    from gpuctl.cli.hosts.tune import Shown


class Progress:
    """Says how each host stands as it answers: a live table on a terminal, a line a host elsewhere."""

    def __init__(self, hosts: Sequence[str], strict: bool) -> None:
        self.hosts, self.strict = hosts, strict
        self.started = time.monotonic()
        self._found: dict[str, Visit] = {}
        self._begun: dict[str, bool] = {}  # host -> whether its end was heard of
        self._live: Any = None

    @property
    def visits(self) -> list[Visit]:
        """The last visit of each host heard of so far, in the inventory's order."""
        return [self._found[host] for host in self.hosts if host in self._found]

    @property
    def not_seen_to_the_end(self) -> list[str]:
        """The hosts that were being changed when the run was broken off."""
        return [host for host, ended in self._begun.items() if not ended]

    def begin(self, hosts: Iterable[str]) -> None:
        """Take note of hosts that are about to be changed."""
        self._begun.update(dict.fromkeys(hosts, False))

    def __enter__(self) -> Progress:
        if output.on_terminal():
            from gpuctl.cli.hosts.live_table import LiveTable

            self._live = LiveTable(self.hosts, self.strict)
            self._live.start()
        return self

    def seen(self, visit: Visit) -> None:
        """Take note of a visit and tell of it."""
        self._found[visit.host] = visit
        if visit.host in self._begun:
            self._begun[visit.host] = True
        if self._live is not None:
            self._live.update(visit)
        else:
            seconds = time.monotonic() - self.started
            with contextlib.suppress(OSError):  # whoever read along has gone: that stops no run
                click.echo(f"[{seconds:6.1f} s] {visit.host}: {line(visit, self.strict)}", err=True)

    def settle(self, visit: Visit) -> None:
        """Take a visit as the last word on its host, without telling of it again."""
        self._found[visit.host] = visit

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()
        if isinstance(error, KeyboardInterrupt):
            begun = self.not_seen_to_the_end
            done = [v.host for v in self.visits if v.answer is not None and not v.differs and v.host not in begun]
            left = [h for h in self.hosts if h not in done and h not in begun]
            for label, hosts in (("done", done), ("begun, end not seen", begun), ("not begun", left)):
                click.echo(f"{label}: {output.names(hosts, 64) or 'none'}", err=True)
            if begun:
                click.echo("what was begun is finished there by itself; `gpuctl drift` tells how it went", err=True)


def line(visit: Visit, strict: bool) -> str:
    """One host in one line."""
    word = status(visit, strict)
    return f"{word}{_counts(visit)}" + (f": {visit.wrong}" if visit.wrong else "")


def _counts(visit: Visit) -> str:
    changed = sum(bool(k["changed"]) for k in visit.knobs)
    differ = sum(k["state"] == "differs" for k in visit.knobs)
    parts = [f"{output.plural(changed, 'setting')} changed"] if changed else []
    parts += [f"{output.plural(differ, 'setting')} to change"] if differ else []
    return f" ({', '.join(parts)})" if parts else ""


def show(visits: Sequence[Visit], shown: Shown, run: str, inventory: str, code: int) -> None:
    """Publish the result of a run."""
    findings = [finding for visit in visits for finding in judge.findings(visit, shown.strict, shown.drift)]
    hosts = [told(visit, shown.strict) for visit in visits]
    details = {"check": shown.check, "run": run or None, "hosts": hosts}
    report = Report(shown.command, {inventory: findings}, details, code=code)
    publish(report, shown.form, shown.metrics, lambda: _table(visits, shown, run))


def _table(visits: Sequence[Visit], shown: Shown, run: str) -> None:
    _changes(visits, shown.diff, shown.why)
    _problems(visits)
    output.table(
        (
            "HOST",
            "STATUS",
            "RIGHT",
            "TO CHANGE" if shown.check else "CHANGED",
            "UNSUPPORTED",
            "PROBLEMS",
            "NOTE",
        ),
        [_row(visit, shown.strict, shown.check) for visit in visits],
    )
    words = [status(visit, shown.strict) for visit in visits]
    told_of = ", ".join(f"{words.count(w)} {w}" for w in dict.fromkeys(words))
    profiles = dict.fromkeys(v.answer["profile"] for v in visits if v.answer and v.answer.get("profile"))
    told_of += f"; profile {' and '.join(profiles)}" if profiles else ""
    click.echo(f"\n{output.plural(len(visits), 'host')}: {told_of}" + (f"; run {run}" if run else ""))


def _row(visit: Visit, strict: bool, check: bool) -> tuple[object, ...]:
    if visit.answer is None:
        return (
            visit.host,
            status(visit, strict),
            "-",
            "-",
            "-",
            "-",
            _wrong(visit),
        )
    states = [knob["state"] for knob in visit.knobs]
    changed = states.count("differs") if check else sum(bool(k["changed"]) for k in visit.knobs)
    bad = sum(s in ("refused", "unknown", "failed", "contested", "conflict") for s in states)
    notes = [f"record {visit.answer['record']}"] if visit.answer.get("record") else []
    notes += ["busy"] if visit.answer.get("busy") else []
    notes += ["its disk cannot be written: nothing can be changed here"] if visit.answer.get("read_only") else []
    notes += [_wrong(visit)] if visit.wrong else []
    right = sum(s in ("ok", "pending") for s in states)
    return (
        visit.host,
        status(visit, strict),
        right,
        changed,
        states.count("unsupported"),
        bad,
        ", ".join(notes),
    )


def _wrong(visit: Visit) -> str:
    return f"{visit.wrong}; {visit.hint}" if visit.hint else visit.wrong


def _changes(visits: Sequence[Visit], diff: bool, why: Mapping[str, str]) -> None:
    """What changed, said once for all hosts on which it was the same."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for visit in visits:
        lines = tuple(_change(k, diff, why) for k in visit.knobs if k["changed"] or k["state"] == "differs")
        if lines:
            groups.setdefault(lines, []).append(visit.host)
    for lines, hosts in groups.items():
        click.echo(f"{output.names(hosts)}:")
        for text in lines:
            click.echo(text)
        click.echo()


def _change(knob: Mapping[str, Any], diff: bool, why: Mapping[str, str]) -> str:
    was = knob.get("was") or knob
    before = ("was " if "was" in knob else "") + judge.sides(was["now"], was["boot"])
    text = f"  {knob['knob']}: {before} -> {_goal(knob, was)}"
    if not diff:
        return text
    steps = [f"\n      {_place(s['setting'])}\n        - {s['before']}\n        + {s['after']}" for s in knob["steps"]]
    return text + (f"\n      why: {why[knob['knob']]}" if knob["knob"] in why else "") + "".join(steps)


def _goal(knob: Mapping[str, Any], was: Mapping[str, Any]) -> str:
    if not knob["restores"]:
        kept = was["now"] == knob["desired"] and was["boot"] not in (None, knob["desired"])
        return f"{knob['desired']}, after a reboot too" if kept else str(knob["desired"])
    values = dict.fromkeys(s["after"] for s in knob["steps"] if s["setting"].startswith("value:"))
    return f"back to {next(iter(values))}" if len(values) == 1 else "back to what it was"


def _place(setting: str) -> str:
    """A setting's name for people: /proc/sys/vm/swappiness, or "vm.swappiness in /etc/sysctl.d/…"."""
    kind, _, rest = setting.partition(":")
    if kind in ("line", "comment"):
        path, _, key = rest.partition(":")
        return f"{key} in {path}"
    return rest if kind in ("value", "file") else f"{kind} {rest}"


def _problems(visits: Sequence[Visit]) -> None:
    """Everything a person has to look at, said once for all hosts on which it is the same."""
    groups: dict[str, list[str]] = {}
    for visit in visits:
        for text in [t for knob in visit.knobs for t in _told_of(knob)]:
            groups.setdefault(text, []).append(visit.host)
    for text, hosts in groups.items():
        click.echo(f"{text}\n    on {output.names(hosts)}")
    if groups:
        click.echo()


def _told_of(knob: Mapping[str, Any]) -> list[str]:
    told = []
    if knob["state"] in ("refused", "unknown", "failed", "conflict", "unsupported"):
        told.append(f"{knob['state'].upper()} {knob['knob']}: {knob['reason']}")
    if knob["state"] == "pending":
        told.append(f"PENDING {knob['knob']}: {knob['reason'] or 'takes effect after a reboot'}")
    for rival in knob["conflicts"]:
        winner = f"{rival['owner']} wins after a reboot" if rival["wins"] else "gpuctl wins after a reboot"
        told.append(f"CONFLICT {knob['knob']}: {rival['where']} ({rival['owner']}) sets {rival['value']}; {winner}")
    return told
