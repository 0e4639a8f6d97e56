"""Create, promote and roll back versions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from gpuctl.core import settings
from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.tmux import session_file
from gpuctl.tmux.paths import SESSION, ending, main_server
from gpuctl.tmux.paths import current as link
from gpuctl.tmux.session import Session
from gpuctl.tmux.versions import check, reload, store, windows
from gpuctl.tmux.versions.model import Version
from gpuctl.tmux.versions.state import Changed, State, read


@dataclass(frozen=True)
class Promotion:
    """The version that became current.

    `before`: the previous one, or ""; `windows`: what changed in the running session's windows, one line each;
    `problem`: why not all of them changed.
    """

    version: Version
    before: str
    reloaded: bool = False
    windows: tuple[str, ...] = ()
    problem: str = ""


def describe(done: Promotion, verb: str) -> str:
    """Describe a promotion in a sentence."""
    if done.before == done.version.name and not done.reloaded:
        return f"{done.version.name} is already current"
    before = f" (before: {done.before})" if done.before else ""
    where = f"{SESSION} uses it now" if done.reloaded else f"{SESSION} will use it when it starts"
    lines = [f"{verb} {done.version.name}{before}; {where}", *(f"  {line}" for line in done.windows)]
    if done.problem:
        rebuild = f"`{ending(main_server())}` and `gpuctl tmux launch --fresh` rebuild all windows"
        lines.append(f"  its windows could not be changed: {done.problem}; {rebuild}")
    return "\n".join(lines)


def ensure_first() -> Path:
    """Return the current version's folder; creates, checks and links the first version if there is none."""
    with store.locked():
        if store.current():
            return link()
        if store.every():
            hint = (
                "`gpuctl tmux rollback` returns to the last promoted version, `gpuctl tmux promote vN` selects another"
            )
            raise InvalidInput("use the current version", f"{link()} does not point to a version", hint)
        _first()
        return link()


def _first() -> Version:
    from gpuctl.tmux import render

    version = store.written(render.files(settings.load()))
    report = check.folder(version.folder)
    if report.mistakes:
        raise GpuctlError("create the first version", _mistakes_of(report), f"the files are in {version.folder}")
    store.point_to(f"versions/{version.name}")
    store.record_release(version, report.changes, [version.name])
    store.note(version, "created and promoted as the first version")
    return version


def new(note: str = "", source: str = "", fresh: bool = False) -> tuple[Version, str]:
    """Create the next version from an existing one, or (`fresh`) from gpuctl's files; returns it and its origin."""
    with store.locked():
        if fresh:
            from gpuctl.tmux import render

            version, origin = store.written(render.files(settings.load())), "gpuctl's own files"
        else:
            copied = _copied(source)
            version, origin = store.copied(copied.folder), copied.name
        store.note(version, f"created from {origin}{f': {note}' if note else ''}")
        return version, origin


def _copied(source: str) -> Version:
    """Return the version to copy; creates the first version if there is none."""
    if source:
        return store.named(source, "make a version")
    versions = store.every()
    return store.current() or (versions[-1] if versions else _first())


def promote(name: str = "") -> Promotion:
    """Check a version (default: newest) and make it current, also on the running server."""
    with store.locked():
        version = store.named(name or "newest", "promote")
        doing = f"promote {version.name}"
        _untouched(version, doing)
        now = store.current()
        if now == version:
            return Promotion(version, version.name)
        report = check.folder(version.folder)
        if report.mistakes:
            raise InvalidInput(doing, _mistakes_of(report), "fix these; `gpuctl tmux validate` lists them again")
        order = [
            *(name_of_version for name_of_version in store.order() if name_of_version != version.name),
            version.name,
        ]
        done = _switch(version, report.changes, report.defaults, order)
        store.note(version, f"promoted{f' (before: {done.before})' if done.before else ''}")
        return done


def rollback(target: str = "") -> Promotion:
    """Make an earlier version current, even if the current one is broken or gone."""
    with store.locked():
        doing = "roll back"
        now = _last()
        version = store.named(target, doing) if target else _earlier(now, doing)
        if version.name not in store.released():
            raise InvalidInput(doing, f"{version.name} was never promoted", f"run `gpuctl tmux promote {version.name}`")
        _untouched(version, doing)
        if store.current() == version:
            return Promotion(version, version.name)
        report = check.measure(version.folder)
        order = store.order()
        order = order[: order.index(version.name) + 1] if version.name in order else [*order, version.name]
        done = _switch(version, report.changes, report.defaults, order)
        store.note(version, f"rolled back to{f' (before: {now})' if now else ''}")
        return done


def _last() -> str:
    """Return the name of the current version, or of the last one if its files are gone."""
    now, order = store.current(), store.order()
    return now.name if now else (order[-1] if order else "")


def _earlier(now: str, doing: str) -> Version:
    order = store.order()
    before = order[: order.index(now)] if now in order else order
    existing = {version.name: version for version in store.every()}
    candidates = [existing[name] for name in before if name in existing and not store.edited(existing[name])]
    if not candidates:
        hint = "`gpuctl tmux versions` lists them; `gpuctl tmux new --fresh` creates one from gpuctl's own files"
        raise InvalidInput(doing, "there is no unchanged, promoted earlier version", hint)
    return candidates[-1]


def _untouched(version: Version, doing: str) -> None:
    if store.edited(version):
        wrong = (
            f"{version.name} was promoted before and its files have changed since; a promoted version must not change"
        )
        hint = f"`gpuctl tmux new --from {version.name}` creates a new version from these files"
        raise InvalidInput(doing, wrong, f"{hint}; `gpuctl tmux rollback --to vN` uses another version")


def _switch(version: Version, changes: Changed, defaults: State, order: list[str]) -> Promotion:
    """Link a version and load it in the running session; restore everything if that reports an error."""
    before, old = store.pointed_to(), _last()
    gone = _set_by(old) - changes
    server = main_server()
    running = read(server) if server.has(SESSION) else None
    store.point_to(f"versions/{version.name}")
    try:
        if running:
            reload.load(server, link() / "tmux.conf", gone, defaults)
        store.record_release(version, changes, order)
    except BaseException:
        store.point_to(before)
        if running:
            reload.put_back(server, running)
        raise
    return _with_windows(Promotion(version, old, running is not None))


def _with_windows(done: Promotion) -> Promotion:
    """Change the running session's windows if session.yml differs; the promotion stands even if that fails."""
    if not done.reloaded:
        return done
    try:
        before, after = _session(done.before), _session(done.version.name)
        changed = windows.change(main_server(), link(), before, after) if before and after else []
        return replace(done, windows=tuple(changed))
    except GpuctlError as error:
        return replace(done, problem=str(error))


def _set_by(name: str) -> Changed:
    """Return what a version set when it was promoted, and what its files set now."""
    release = store.released().get(name)
    version_on_disk = next((version for version in store.every() if version.name == name), None)
    changes = release.changes if release else Changed()
    if version_on_disk and (release is None or store.edited(version_on_disk)):
        changes |= check.measure(version_on_disk.folder).changes
    return changes


def _session(name: str) -> Session | None:
    """Return a version's session; None if it is gone or has mistakes, so that nothing can be compared with it."""
    try:
        return session_file.read(store.root() / "versions" / name / "session.yml") if name else None
    except InvalidInput:
        return None


def _mistakes_of(report: check.Report) -> str:
    return "\n".join(["it has mistakes", *(f"  {mistake}" for mistake in report.mistakes)])
