"""cluster sync: copy a folder to all pods of an environment, and keep it in sync."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from gpuctl.cli.cluster.environment_options import of_environment
from gpuctl.cli.shared import options, output
from gpuctl.cli.shared.output import Output
from gpuctl.cluster.sync.request import SyncCommand
from gpuctl.core.exit_codes import INTERRUPTED, NOT_DONE, PROBLEMS, worst
from gpuctl.core.sizes import size

if TYPE_CHECKING:
    from gpuctl.cluster.sync.local import Local
    from gpuctl.cluster.sync.model import Kept, Outcome
    from gpuctl.workflows.sync import PreparedSync

MOST_SHOWN = 20

pods_options = options.together(
    click.argument("name", metavar="[NAME|FILE]", default=""),
    of_environment,
    click.option("--pods", metavar="POD,...", default="", help="These pods instead of an environment's."),
    click.option(
        "--container", "-c", metavar="NAME", default="", help="The container.  [default: ml, or the first one]"
    ),
    options.context,
    click.option("--namespace", "-n", metavar="NAME", default="", help="Namespace of --pods."),
)
folder_options = options.together(
    click.option("--source", metavar="DIR", default=".", show_default=True, help="The local folder."),
    click.option("--target", metavar="DIR", default="", help="The folder in the pods.  [default: /workspace]"),
    click.option("--exclude", multiple=True, metavar="PATTERN", help="Exclude, as in .gitignore; !PATTERN includes."),
    click.option("--force", is_flag=True, help="Overwrite changes made in the pods: they are lost."),
    click.option("--python", metavar="PROGRAM", default="python3", show_default=True, help="Python in the pods."),
)


@click.command()
@options.as_request(
    SyncCommand,
    pods_options,
    folder_options,
    click.option("--watch", is_flag=True, help="Keep syncing every change until Ctrl-C."),
    options.check,
)
@options.output
def sync(request: SyncCommand, form: Output) -> None:
    """Sync a folder to all pods of an environment.

    Only changes are sent, to all pods concurrently, and each file is verified by hash in the pod. Only files
    written by an earlier sync and unchanged since then are replaced or deleted; all others are kept and listed.
    Excluded are .git, caches, virtual environments, checkpoints and the like, and the patterns of .gpuctlignore.
    """
    if bool(request.targets.selection.name) == bool(request.targets.pods):
        raise click.UsageError("pass either a cluster's NAME or --pods")
    if request.watch and (request.check or form != "table"):
        raise click.UsageError("--watch goes with neither --check nor --output")
    from gpuctl.cluster.sync import flow
    from gpuctl.workflows.sync import prepare

    prepared = prepare(request)
    if request.watch:
        _watch(prepared)
    outcomes = flow.sync(
        prepared.connector,
        prepared.targets,
        prepared.local,
        prepared.request,
        lambda outcome: _progress(outcome, form),
    )
    _show(outcomes, prepared.local, request.check, form)
    raise click.exceptions.Exit(worst(map(_code, outcomes)))


# ---- outcome --------------------------------------------------------------------------------------------------------


def _code(outcome: Outcome) -> int:
    if outcome.wrong and outcome.kind == "sync":
        return NOT_DONE
    return 0 if outcome.verdict == "OK" else PROBLEMS


def _progress(outcome: Outcome, form: Output) -> None:
    if form == "table" and not output.on_terminal():
        click.echo(f"{outcome.pod}: {_word(outcome)}", err=True)


def _word(outcome: Outcome) -> str:
    if outcome.wrong:
        return f"{outcome.verdict}: {outcome.wrong}"
    if outcome.kind == "sees":
        return f"OK: it {_shares(outcome)}"
    parts = [output.plural(outcome.files, "file"), size(outcome.bytes)]
    parts += [f"{outcome.deleted} deleted"] if outcome.deleted else []
    parts += [f"{len(outcome.kept)} kept"] if outcome.kept else []
    parts += [f"{len(outcome.failed)} failed"] if outcome.failed else []
    return f"{outcome.verdict}: {', '.join(parts)}, {outcome.seconds:.2f} s"


def _shares(outcome: Outcome) -> str:
    return f"shares the folder of {outcome.shares}" if outcome.shares else "shares the folder, and sees the new content"


def _show(outcomes: Sequence[Outcome], local: Local, check: bool, form: Output) -> None:
    if form != "table":
        summary = {"source": local.name, "check": check, "left_out": sorted(local.scanned.left_out)}
        output.data({**summary, "pods": [_as_dict(outcome) for outcome in outcomes]}, form)
        return
    rows = [(outcome.pod, str(outcome.verdict), *_cells(outcome)) for outcome in outcomes]
    output.table(("POD", "", "WOULD WRITE" if check else "WRITTEN", "SIZE", "DELETED", "KEPT", "S", ""), rows)
    _list_paths("KEPT", [(outcome.pod, kept) for outcome in outcomes for kept in outcome.kept])
    _list_paths("FAILED", [(outcome.pod, kept) for outcome in outcomes for kept in outcome.failed])
    if any(outcome.kept for outcome in outcomes):
        click.echo("hint: check the pods' versions; --force replaces them")
    for hint in dict.fromkeys(outcome.hint for outcome in outcomes if outcome.hint):
        click.echo(f"hint: {hint}")
    if strangers := max((outcome.strangers for outcome in outcomes), default=0):
        click.echo(f"{output.plural(strangers, 'file')} of a sync from another folder stay there; --force deletes them")
    if local.scanned.left_out:
        click.echo(f"excluded: {output.names([_shown(path) for path in sorted(local.scanned.left_out)])}")


def _as_dict(outcome: Outcome) -> dict[str, Any]:
    """Return plain data that YAML can hold: no enumerations or tuples."""
    lists = {name: [asdict(path) for path in getattr(outcome, name)] for name in ("kept", "failed")}
    return {**asdict(outcome), "verdict": str(outcome.verdict), **lists}


def _cells(outcome: Outcome) -> tuple[str, ...]:
    if outcome.kind == "sees":
        return "-", "-", "-", "-", f"{outcome.seconds:.2f}", outcome.wrong or _shares(outcome)
    kept = len(outcome.kept)
    return (
        str(outcome.files),
        size(outcome.bytes),
        str(outcome.deleted),
        str(kept),
        f"{outcome.seconds:.2f}",
        outcome.wrong,
    )


def _shown(path: str) -> str:
    """Return a path that is safe to print."""
    return path if path.isprintable() else repr(path)


def _list_paths(word: str, paths: Sequence[tuple[str, Kept]]) -> None:
    """List paths that were left alone, merged over the pods with the same reason."""
    groups: dict[tuple[str, str], list[str]] = {}
    for pod, kept in paths:
        groups.setdefault((kept.path, kept.why), []).append(pod)
    for (path, why), pods in list(groups.items())[:MOST_SHOWN]:
        click.echo(f"{word} {path!r}: {why} ({output.names(pods)})")
    if len(groups) > MOST_SHOWN:
        click.echo(f"{word} {len(groups) - MOST_SHOWN} more; --output json has all of them")


# ---- watching -------------------------------------------------------------------------------------------------------


class Lines:
    """Prints a line per change once all pods have it, and a line per pod with trouble."""

    def __init__(self) -> None:
        self.waiting: dict[int, tuple[float, Sequence[str]]] = {}  # version -> time of the change, changed paths
        self.pods: dict[str, int] = {}
        self.without: dict[str, set[str]] = {}  # pod -> paths that it rejected
        self.full: set[str] = set()  # pods with a full disk: it is unknown what they lack
        self.before: dict[str, str] = {}
        self.lock = threading.Lock()

    def changed(self, version: int, paths: Sequence[str]) -> None:
        with self.lock:
            self.waiting[version] = time.monotonic(), paths
            self._all_have()  # a pod may report the version before this event

    def reached(self, outcome: Outcome, version: int) -> None:
        with self.lock:
            first = outcome.kind == "sees" or outcome.pod not in self.pods
            if outcome.kind == "sync":
                self.pods[outcome.pod] = version
                self.without[outcome.pod] = {kept.path for kept in (*outcome.kept, *outcome.failed)}
                self.full = self.full | {outcome.pod} if outcome.wrong else self.full - {outcome.pod}
            trouble = [f"kept {kept.path!r}: {kept.why}" for kept in outcome.kept]
            trouble += [f"failed {kept.path!r}: {kept.why}" for kept in outcome.failed]
            trouble += [outcome.wrong] if outcome.wrong else []
            if first:
                self._say(f"{outcome.pod}: {_word(outcome)}")
            self._once(outcome.pod, "" if outcome.wrong and first else "; ".join(trouble[:3]))
            self._all_have()

    def away(self, outcome: Outcome) -> None:
        with self.lock:
            self.pods.pop(outcome.pod, None)
            self._once(outcome.pod, f"{outcome.wrong}; trying again")

    def _once(self, pod: str, text: str) -> None:
        if text and self.before.get(pod) != text:
            self._say(f"{pod}: {text}")
        self.before[pod] = text

    def _all_have(self) -> None:
        have = min(self.pods.values(), default=0)
        for version in [number for number in self.waiting if number <= have]:
            changed_at, paths = self.waiting.pop(version)
            shown = output.names([_shown(path) for path in paths], 3)
            complete = sum(not self.without[pod].intersection(paths) for pod in self.pods.keys() - self.full)
            self._say(f"{shown}: {output.plural(complete, 'pod')}, {time.monotonic() - changed_at:.2f} s")

    def _say(self, text: str) -> None:
        click.echo(f"{time.strftime('%H:%M:%S')} {text}")
        sys.stdout.flush()


def _watch(prepared: PreparedSync) -> None:
    """Sync until Ctrl-C."""
    from gpuctl.cluster.sync import watch

    shown = os.path.relpath(prepared.local.source)
    try:
        watch.watch(
            watch.Settings(prepared.connector, prepared.local, prepared.request, Lines()),
            prepared.targets,
            lambda: click.echo(f"watching {shown} for {output.plural(len(prepared.targets), 'pod')}; Ctrl-C stops"),
        )
    except KeyboardInterrupt:
        click.echo("sync stopped; the pods keep their files", err=True)
    raise click.exceptions.Exit(INTERRUPTED)
