"""tmux: the session, its saves and its templates."""

from __future__ import annotations

import sys

import click

from gpuctl.cli.shared import completion, options, output
from gpuctl.cli.shared.click_groups import Group
from gpuctl.cli.shared.output import Output


@click.group("tmux", cls=Group)
def group() -> None:
    """Start the tmux session tmux-main, and try, promote or roll back versions of its configuration."""


@group.command()
@click.option("--fresh", is_flag=True, help="Build the session from session.yml, not from the last save.")
@click.option(
    "--template",
    metavar="NAME",
    default="",
    help="Build the session from this template (see `gpuctl tmux template list`).",
    shell_complete=completion.templates,
)
@click.option("--detached", is_flag=True, help="Start the session without attaching to it.")
def launch(fresh: bool, template: str, detached: bool) -> None:
    """Attach to the session tmux-main; start or restore it first if it is not running."""
    from gpuctl.tmux import launch as session

    launched = session.launch(fresh=fresh, template=template)
    if detached or not (sys.stdin.isatty() and sys.stdout.isatty()):
        click.echo(f"tmux-main {launched.text}; `gpuctl tmux launch` on a terminal attaches to it")
        return
    if launched.for_others:  # to be read again after detaching
        click.echo(f"tmux-main {launched.text}", err=True)
    session.attach()


@group.command()
@click.argument("kubeconfig", default="")
def status(kubeconfig: str) -> None:
    """Print the current Kubernetes context as the status bar shows it, with tmux styles.

    KUBECONFIG is one file or several separated by colons; by default, the files that kubectl reads.
    """
    from gpuctl.core import settings
    from gpuctl.tmux.status import default_kubeconfig, text

    click.echo(text(kubeconfig or default_kubeconfig(), settings.load()))


@group.command()
def cheatsheet() -> None:
    """Print every key of the current version with its description."""
    from gpuctl.tmux.launch import folder

    click.echo((folder() / "cheatsheet.txt").read_text(), nl=False)


@group.command()
def save() -> None:
    """Save the session: its windows, panes, directories, and programs that a restore starts again."""
    from gpuctl.tmux import saving
    from gpuctl.tmux.paths import main_server

    saved = saving.save(main_server())
    click.echo(f"saved as {saved.when}: {output.plural(len(saved.session.windows), 'window')}")


@group.command()
@click.argument("when", default="", shell_complete=completion.saves)
@click.option("--list", "list_only", is_flag=True, help="List the saves, newest first, and restore nothing.")
@options.output
def restore(when: str, list_only: bool, form: Output) -> None:
    """Rebuild the session from its last save, or from the save WHEN, such as 2026-01-31T08-00-00Z.

    The session must not be running.
    """
    from gpuctl.tmux import launch as session
    from gpuctl.tmux import saving

    if not list_only:
        saved = saving.named(when)
        click.echo(f"tmux-main {session.restore(saved).text}")
        return
    saves = saving.saves()
    rows = [(s.when, len(s.session.windows), sum(len(w.panes) for w in s.session.windows), str(s.path)) for s in saves]
    if form != "table":
        output.data([dict(zip(("when", "windows", "panes", "path"), row, strict=True)) for row in rows], form)
        return
    output.table(("SAVE", "WINDOWS", "PANES", "FILE"), rows)


@group.command(hidden=True)
def fit() -> None:
    """Restore the pane proportions of this server's windows; tmux calls it after a resize."""
    from gpuctl.tmux import resize as panes

    panes.fit(panes.current_server("fit the panes", "tmux runs it when a terminal is resized"))


@group.command(hidden=True)
def settings() -> None:
    """Apply the user's key settings to this server; tmux calls it when it reads the configuration."""
    from gpuctl.tmux import launch
    from gpuctl.tmux.resize import current_server

    launch.apply_settings(current_server("apply the settings", "tmux runs it when it reads its configuration"))


@group.command("leave-server", hidden=True)
def leave_server() -> None:
    """Restore this server's keys and options; tmux calls it when a session ends."""
    from gpuctl.tmux.resize import current_server
    from gpuctl.tmux.versions import neighbours

    neighbours.leave(current_server("restore the server", "tmux runs it when a session ends"))


@group.group(cls=Group)
def template() -> None:
    """Share sessions as files, for example in a team's git repository."""


@template.command("list")
@options.output
def list_templates(form: Output) -> None:
    """List the imported templates."""
    from gpuctl.tmux import templates

    sessions = templates.load_all()
    rows = [(name, ", ".join(window.name for window in session.windows)) for name, session in sessions.items()]
    if form != "table":
        output.data([{"name": name, "windows": windows.split(", ")} for name, windows in rows], form)
        return
    output.table(("TEMPLATE", "WINDOWS"), rows)


@template.command()
def export() -> None:
    """Print the current version's session file, for others to import."""
    from gpuctl.tmux.launch import folder

    click.echo((folder() / "session.yml").read_text(), nl=False)


@template.command("import")
@click.argument("path", type=click.Path(exists=True, dir_okay=False))
@click.option("--name", default="", help="Name of the template.  [default: the file name]")
@options.sure
def import_template(path: str, name: str, yes: bool) -> None:
    """Import a session file as a template, after showing what it would run and asking for confirmation."""
    from pathlib import Path

    from gpuctl.core.errors import InvalidInput
    from gpuctl.tmux import session_file, templates

    file = Path(path)
    session = session_file.read(file)
    name = templates.usable(name or file.stem)
    click.echo(f"{path} would run:")
    for line in templates.runs(session):
        click.echo(f"  {line}")
    if not yes:
        if not sys.stdin.isatty():
            raise InvalidInput(
                f"import {path}", "it runs commands, and there is no terminal to confirm them", "use --yes"
            )
        click.confirm(f"Import it as the template {name}?", abort=True)
    templates.store(name, session)
    click.echo(f"`gpuctl tmux launch --template {name}` builds it")
