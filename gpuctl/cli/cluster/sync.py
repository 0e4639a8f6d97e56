"""cluster sync: bring a folder to all pods of an environment, and keep it there."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuctl.cli.cluster.environment_options import on_cluster, which_one
from gpuctl.cli.errors import INTERRUPTED
from gpuctl.cli.shared import options, output
from gpuctl.cli.shared.output import Output
from gpuctl.core.errors import InvalidInput
from gpuctl.core.sizes import size
from gpuctl.domain.findings import worst_code

if TYPE_CHECKING:
    from gpuctl.cluster.sync.model import Outcome
    from gpuctl.cluster.sync.targets import Target
    from gpuctl.edges.kube.cluster import Cluster

MOST_SHOWN = 20
PROBLEMS, NOT_DONE = 1, 3

which = options.together(
    click.argument("name", metavar="[NAME|FILE]", default=""),
    which_one,
    click.option("--pods", metavar="POD,...", default="", help="These pods, whatever they belong to."),
    click.option("--container", "-c", metavar="NAME", default="", help="Which container.  [default: ml, or the first]"),
    options.context,
    click.option("--namespace", "-n", metavar="NAME", default="", help="With --pods: their namespace."),
)
how = options.together(
    click.option("--source", metavar="DIR", default=".", show_default=True, help="What to bring there."),
    click.option("--target", metavar="DIR", default="", help="Where to in the pods.  [default: /workspace]"),
    click.option("--exclude", multiple=True, metavar="PATTERN", help="Leave out, as in .gitignore; !PATTERN: do not."),
    click.option("--force", is_flag=True, help="Over what was changed in the pods, too: that is lost."),
    click.option("--python", metavar="PROGRAM", default="python3", show_default=True, help="Python in the pods."),
)


@click.command()
@which
@how
@click.option("--watch", is_flag=True, help="Go on: bring every change there as it is made, until Ctrl-C.")
@options.check
@options.output
def sync(name: str, pods: str, watch: bool, check: bool, form: Output, **given: Any) -> None:
    """Bring a folder to all pods of an environment at the same time: only what changed, checked by hash in each pod.

    Only what an earlier sync put there, and nobody changed since, is deleted or replaced; the rest is kept and told.
    Left out are .git, caches, virtual environments, checkpoints and the like, and what .gpuctlignore says.
    """
    if bool(name) == bool(pods):
        raise click.UsageError("give either a cluster's NAME or --pods")
    if watch and (check or form != "table"):
        raise click.UsageError("--watch goes with neither --check nor --output")
    from gpuctl.cluster.sync import excludes, flow
    from gpuctl.cluster.sync.local import Local
    from gpuctl.cluster.sync.push import Wanted

    source, target = source_of(given["source"]), target_of(given["target"])
    left_out = excludes.of(source, given["exclude"])
    cluster, targets = _pods(name, pods, target, given)
    local = Local(source, left_out)
    way, wanted = flow.Way(cluster, given["python"]), Wanted(target, given["force"], check)
    if watch:
        _watch(way, targets, local, wanted)
    outcomes = flow.sync(way, targets, local, wanted, lambda outcome: _progress(outcome, form))
    _show(outcomes, local, check, form)
    raise click.exceptions.Exit(worst_code(map(_code, outcomes)))


def source_of(text: str) -> Path:
    path = Path(text).expanduser().absolute()
    doing = f"sync the folder {text}"
    if not path.is_dir():
        raise InvalidInput(doing, "there is no such folder", "--source names the folder to bring to the pods")
    path = path.resolve()
    if path in (Path("/"), Path.home().resolve()):
        raise InvalidInput(
            doing, f"it is {path}, all of it", "go to the folder of your project, or name it by --source"
        )
    return path


def target_of(text: str) -> str:
    from gpuctl.cluster.manifests.storage import WHERE

    found = text or WHERE["workspace"]
    if not found.startswith("/") or ".." in found.split("/") or not found.strip("/"):
        raise InvalidInput(
            f"sync to {found}", "it is not a folder by its whole path", "give one such as /workspace/code"
        )
    return found


def _pods(name: str, pods: str, target: str, given: dict[str, Any]) -> tuple[Cluster, list[Target]]:
    from gpuctl.cluster.sync import pods as found_pods
    from gpuctl.edges.kube import cluster as kube

    container = given["container"]
    if pods:
        cluster = kube.connect(given["context"], given["namespace"])
        return cluster, found_pods.named(cluster, [each for each in pods.split(",") if each], target, container)
    cluster, env = on_cluster(name, given)
    return cluster, found_pods.labelled(cluster, env.selector, target, container)


# ---- what came of it ------------------------------------------------------------------------------------------------


def _code(outcome: Outcome) -> int:
    if outcome.wrong and outcome.way == "sync":
        return NOT_DONE
    return 0 if outcome.verdict == "OK" else PROBLEMS


def _progress(outcome: Outcome, form: Output) -> None:
    if form == "table" and not output.on_terminal():
        click.echo(f"{outcome.pod}: {_word(outcome)}", err=True)


def _word(outcome: Outcome) -> str:
    if outcome.wrong:
        return f"{outcome.verdict}: {outcome.wrong}"
    if outcome.way == "sees":
        return f"OK: it {_shares(outcome)}"
    parts = [output.plural(outcome.files, "file"), size(outcome.bytes)]
    parts += [f"{outcome.deleted} deleted"] if outcome.deleted else []
    parts += [f"{len(outcome.kept)} kept"] if outcome.kept else []
    parts += [f"{len(outcome.failed)} failed"] if outcome.failed else []
    return f"{outcome.verdict}: {', '.join(parts)}, {outcome.seconds:.2f} s"


def _shares(outcome: Outcome) -> str:
    return f"shares the folder of {outcome.shares}" if outcome.shares else "shares the folder, and sees it"


def _show(outcomes: Sequence[Outcome], local: Any, check: bool, form: Output) -> None:
    if form != "table":
        told = {"source": local.name, "check": check, "left_out": sorted(local.found.left_out)}
        output.data({**told, "pods": [asdict(outcome) for outcome in outcomes]}, form)
        return
    rows = [(each.pod, str(each.verdict), *_cells(each)) for each in outcomes]
    output.table(("POD", "", "WOULD WRITE" if check else "WRITTEN", "SIZE", "DELETED", "KEPT", "S", ""), rows)
    _tell_paths("KEPT", [(outcome.pod, each) for outcome in outcomes for each in outcome.kept])
    _tell_paths("FAILED", [(outcome.pod, each) for outcome in outcomes for each in outcome.failed])
    if any(outcome.kept for outcome in outcomes):
        click.echo("hint: look at what the pods have there; --force replaces it")
    for hint in dict.fromkeys(outcome.hint for outcome in outcomes if outcome.hint):
        click.echo(f"hint: {hint}")
    if strangers := max((outcome.strangers for outcome in outcomes), default=0):
        click.echo(f"{output.plural(strangers, 'file')} of a sync from another folder stay there; --force deletes them")
    if local.found.left_out:
        click.echo(f"left out: {output.names([_shown(path) for path in sorted(local.found.left_out)])}")


def _cells(outcome: Outcome) -> tuple[str, ...]:
    if outcome.way == "sees":
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
    """A path as a terminal can show it."""
    return path if path.isprintable() else repr(path)


def _tell_paths(word: str, found: Sequence[tuple[str, Any]]) -> None:
    """What was left alone, said once for all pods in which it is the same."""
    groups: dict[tuple[str, str], list[str]] = {}
    for pod, each in found:
        groups.setdefault((each.path, each.why), []).append(pod)
    for (path, why), pods in list(groups.items())[:MOST_SHOWN]:
        click.echo(f"{word} {path!r}: {why} ({output.names(pods)})")
    if len(groups) > MOST_SHOWN:
        click.echo(f"{word} {len(groups) - MOST_SHOWN} more; --output json has all of them")


# ---- watching -------------------------------------------------------------------------------------------------------


class Lines:
    """A line for each change once all pods have it, and one for each pod that has trouble."""

    def __init__(self) -> None:
        self.waiting: dict[int, tuple[float, Sequence[str]]] = {}  # version -> when it was seen, what changed
        self.pods: dict[str, int] = {}
        self.without: dict[str, set[str]] = {}  # pod -> paths that it did not take
        self.full: set[str] = set()  # pods that have no room: it is not known what each of them lacks
        self.before: dict[str, str] = {}
        self.lock = threading.Lock()

    def changed(self, version: int, paths: Sequence[str]) -> None:
        with self.lock:
            self.waiting[version] = time.monotonic(), paths
            self._all_have()  # a pod may have been faster than this news

    def reached(self, outcome: Outcome, version: int) -> None:
        with self.lock:
            first = outcome.way == "sees" or outcome.pod not in self.pods
            if outcome.way == "sync":
                self.pods[outcome.pod] = version
                self.without[outcome.pod] = {each.path for each in (*outcome.kept, *outcome.failed)}
                self.full = self.full | {outcome.pod} if outcome.wrong else self.full - {outcome.pod}
            trouble = [f"kept {each.path!r}: {each.why}" for each in outcome.kept]
            trouble += [f"failed {each.path!r}: {each.why}" for each in outcome.failed]
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
        for version in [each for each in self.waiting if each <= have]:
            seen, paths = self.waiting.pop(version)
            shown = output.names([_shown(path) for path in paths], 3)
            well = sum(not self.without[pod].intersection(paths) for pod in self.pods.keys() - self.full)
            self._say(f"{shown}: {output.plural(well, 'pod')}, {time.monotonic() - seen:.2f} s")

    def _say(self, text: str) -> None:
        click.echo(f"{time.strftime('%H:%M:%S')} {text}")
        sys.stdout.flush()


def _watch(way: Any, targets: Sequence[Target], local: Any, wanted: Any) -> None:
    """Until Ctrl-C, which is the only end."""
    from gpuctl.cluster.sync import watch

    shown = os.path.relpath(local.source)
    try:
        watch.watch(
            watch.Settings(way, local, wanted, Lines()),
            targets,
            lambda: click.echo(f"watching {shown} for {output.plural(len(targets), 'pod')}; Ctrl-C ends it"),
        )
    except KeyboardInterrupt:
        click.echo("sync ended; the pods keep what they have", err=True)
    raise click.exceptions.Exit(INTERRUPTED)
