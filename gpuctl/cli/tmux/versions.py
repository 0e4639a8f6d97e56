"""tmux new, versions, validate, preview, feedback, promote, rollback, diff."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuctl.cli.shared import completion, options, output
from gpuctl.cli.shared.click_groups import Group
from gpuctl.cli.shared.output import Output
from gpuctl.cli.tmux.group import group

if TYPE_CHECKING:
    from gpuctl.tmux.versions.check import Report
    from gpuctl.tmux.versions.feedback import Feedback

__all__ = ["group"]  # importing this file adds the commands


@group.command()
@click.option("--note", metavar="TEXT", default="", help="Purpose of the version, recorded in CHANGELOG.md.")
@click.option(
    "--from",
    "source",
    metavar="VERSION",
    default="",
    help="Copy this version instead of the current one.",
    shell_complete=completion.versions,
)
@click.option("--fresh", is_flag=True, help="Start from gpuctl's own files and your settings.")
def new(note: str, source: str, fresh: bool) -> None:
    """Create the next version, a copy of the current one, for you to edit."""
    from gpuctl.tmux.versions import flow

    if source and fresh:
        raise click.UsageError("--from and --fresh cannot be combined")
    version, origin = flow.new(note, source, fresh)
    click.echo(f"{version.name} created from {origin}: {version.folder}")
    click.echo(f"edit its files, then try it: gpuctl tmux preview {version.name}")


@group.command()
@options.output
def versions(form: Output) -> None:
    """List the versions, oldest first."""
    from gpuctl.tmux.versions import listing

    rows = listing.rows()
    if form != "table":
        output.data(rows, form)
        return
    fields = ("version", "state", "changed", "promoted", "feedback", "folder")
    output.table([name.upper() for name in fields], [[row[name] for name in fields] for row in rows])


@group.command()
@click.argument("version", metavar="[VERSION|PATH]", default="", shell_complete=completion.versions)
def validate(version: str) -> None:
    """Check a version (default: newest), a version folder or a configuration file on a private tmux server.

    tmux runs the commands one at a time, so that every mistake is reported with its file and line. Programs that they
    start do run. Exit code 1 if there are mistakes.
    """
    from gpuctl.tmux.versions import check, store

    path = Path(version)
    if "/" in version or path.suffix == ".conf":
        if not path.exists():
            raise click.BadParameter(f"there is no {version}", param_hint="PATH")
        _report(check.folder(path.absolute()) if path.is_dir() else check.file(path.absolute()), version)
        return
    chosen = store.named(version or "newest", "validate")
    _report(check.folder(chosen.folder), chosen.name)


def _report(report: Report, name: str) -> None:
    for mistake in report.mistakes:
        click.echo(str(mistake))
    if report.mistakes:
        click.echo(f"{name}: {output.plural(len(report.mistakes), 'mistake')}", err=True)
        raise click.exceptions.Exit(1)
    counts = [(report.commands, "command"), (len(report.changes.keys), "key"), (report.windows, "window")]
    summary = ", ".join(output.plural(count, word) for count, word in counts if count)
    click.echo(f"{name} is valid ({summary})")


@group.command()
@click.argument("version", default="", shell_complete=completion.versions)
@click.option("--detached", is_flag=True, help="Start it without showing it.")
@click.option("--attach", is_flag=True, help="Attach this terminal instead of opening a window.")
def preview(version: str, detached: bool, attach: bool) -> None:
    """Try a version (default: newest) on its own tmux server; tmux-main is not touched.

    The pane at the bottom takes feedback, one line at a time, and these commands: `approve` or `lgtm` promotes the
    version, `rollback` makes the previous one current, `show config` shows the files, `reload` reads them again, `quit`
    closes the preview.
    """
    from gpuctl.tmux.versions import preview as previews
    from gpuctl.tmux.versions import preview_target

    started = previews.start(version)
    why_hidden = preview_target.show(preview_target.choose_target(detached, attach))
    state = "is already running" if started.was_running else "is running"
    if not why_hidden:
        click.echo(f"the preview of {started.version.name} {state}, in a new window")
        return
    click.echo(f"the preview of {started.version.name} {state}, but is not shown: {why_hidden}")
    click.echo("attach a terminal:  gpuctl tmux preview --attach")
    click.echo(f"or without gpuctl:  {preview_target.attach_command()}")


@group.group(cls=Group)
def feedback() -> None:
    """Give feedback on versions, or read new feedback."""


@feedback.command()
@click.argument("text", nargs=-1)
def add(text: tuple[str, ...]) -> None:
    """Record TEXT, or ask for it, as feedback on the current version or, inside a preview, the previewed one.

    Inside a preview, `approve`, `lgtm`, `rollback` and `quit` are also carried out, as in its feedback pane.
    """
    from gpuctl.tmux.versions import feedback as log
    from gpuctl.tmux.versions import pane as panes
    from gpuctl.tmux.versions import preview as previews
    from gpuctl.tmux.versions import preview_target

    version = preview_target.version_in_use()
    message = " ".join(text) or click.prompt(
        f"feedback on {version or 'tmux'} (Enter for none)", default="", prompt_suffix=": ", show_default=False
    )
    command = panes.meaning(log.one_line(message))
    if not command:
        return
    if command in panes.DECISIONS and preview_target.previewed():
        click.echo(panes.decide(command, message, version))
        _pause_unless(text)
        return
    log.add(previews.log(), version, message)
    click.echo(f"noted for {version or 'no version'}")
    if command != "feedback":
        where = "feedback pane of a preview" if command in ("show", "reload") else "preview"
        click.echo(f"nothing else was done: `{log.one_line(message)}` is a command only in the {where}", err=True)
        _pause_unless(text)


def _pause_unless(text: tuple[str, ...]) -> None:
    """Wait for a key if the text was asked for: the popup of prefix f would take the answer away."""
    if not text:
        click.pause("press any key to close")


@feedback.command()
@click.option("--follow", is_flag=True, help="Keep printing new feedback until interrupted.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
def check(follow: bool, as_json: bool) -> None:
    """Print the feedback since the last check. Exit code 0 if there is any, 1 if there is none."""
    import time

    from gpuctl.tmux.versions import preview as previews
    from gpuctl.tmux.versions.feedback_cursor import taken

    while True:
        with taken(previews.log()) as feedback_entries:
            for entry in feedback_entries:
                click.echo(
                    _as_json(entry) if as_json else f"{entry.version or '?'} {entry.date} [{entry.time}] {entry.text}"
                )
        if not follow and not feedback_entries:
            click.echo("no new feedback since the last check", err=as_json)
        if not follow:
            raise click.exceptions.Exit(0 if feedback_entries else 1)
        time.sleep(0.5)


def _as_json(entry: Feedback) -> str:
    import json
    from dataclasses import asdict

    return json.dumps({name: value or None for name, value in asdict(entry).items()}, ensure_ascii=False)


@feedback.command()
def pane() -> None:
    """Read feedback line by line; the lower pane of a preview runs this."""
    import contextlib

    with contextlib.suppress(ImportError):
        import readline  # noqa: F401 - lines can be edited and repeated

    from gpuctl.tmux.versions import pane as panes

    panes.inside().run(lambda: input("> "), click.echo)


@group.command()
@click.argument("version", default="", shell_complete=completion.versions)
def promote(version: str) -> None:
    """Check a version (default: newest) and make it current, in the running session too.

    A version with mistakes is refused. If the running tmux reports an error, the previous state is restored.
    """
    from gpuctl.tmux.versions import flow

    click.echo(flow.describe(flow.promote(version), "promoted"))


@group.command()
@click.option(
    "--to",
    "target",
    metavar="VERSION",
    default="",
    help="The version to make current.  [default: the previous one]",
    shell_complete=completion.versions,
)
def rollback(target: str) -> None:
    """Make an earlier version current again, even if the files of the current one are broken or gone."""
    from gpuctl.tmux.versions import flow

    click.echo(flow.describe(flow.rollback(target), "rolled back to"))


@group.command()
@click.argument("a", shell_complete=completion.versions_and_words)
@click.argument("b", shell_complete=completion.versions_and_words)
def diff(a: str, b: str) -> None:
    """Show the differences between versions A and B; `current` and `newest` are accepted as names."""
    from gpuctl.tmux.versions import listing, store

    doing = "compare versions"
    for line in listing.differences(store.named(a, doing), store.named(b, doing)):
        click.echo(line)
