"""tmux: the session, its configuration versions, preview and feedback."""

from __future__ import annotations

import sys

import click

from gpuctl.cli.shared import options, output
from gpuctl.cli.shared.click_groups import Group
from gpuctl.cli.shared.output import Output


@click.group("tmux", cls=Group)
def group() -> None:
    """The tmux environment: start it, try a new version, keep or undo it."""


@group.command()
@click.option("--fresh", is_flag=True, help="Build it from session.yml instead of the last save.")
@click.option(
    "--template", metavar="NAME", default="", help="Build it from this template (`gpuctl tmux template list`)."
)
@click.option("--detached", is_flag=True, help="Start it without attaching.")
def launch(fresh: bool, template: str, detached: bool) -> None:
    """Start the session tmux-main, or attach to it if it is running."""
    from gpuctl.tmux import launch as session

    message = session.launch(fresh=fresh, template=template)
    if detached or not (sys.stdin.isatty() and sys.stdout.isatty()):
        click.echo(f"tmux-main {message}; `gpuctl tmux launch` on a terminal attaches to it")
        return
    session.attach()


@group.command()
@click.argument("kubeconfig", default="")
def status(kubeconfig: str) -> None:
    """Print the Kubernetes context of KUBECONFIG as the status bar shows it, with tmux styles.

    KUBECONFIG is one file or several, separated as in the variable; the default is what kubectl would read.
    """
    import os

    from gpuctl.core import settings
    from gpuctl.edges.kube import config as edge
    from gpuctl.tmux.status import text

    click.echo(text(kubeconfig or os.pathsep.join(map(str, edge.files())), settings.load()))


@group.command()
def cheatsheet() -> None:
    """Print every key of the current version with its description."""
    from gpuctl.tmux.launch import folder

    click.echo((folder() / "cheatsheet.txt").read_text(), nl=False)


@group.command()
def save() -> None:
    """Save the session: windows, panes, directories, and the programs that may be restarted."""
    from gpuctl.tmux import saving
    from gpuctl.tmux.paths import main_server

    saved = saving.save(main_server())
    click.echo(f"saved as {saved.when}: {output.plural(len(saved.session.windows), 'window')}")


@group.command()
@click.argument("when", default="")
@click.option("--list", "listed", is_flag=True, help="Only list the saves, newest first.")
@options.output
def restore(when: str, listed: bool, form: Output) -> None:
    """Rebuild the session from its last save, or from the save WHEN; it must not be running."""
    from gpuctl.tmux import launch as session
    from gpuctl.tmux import saving

    if not listed:
        saved = saving.named(when)
        session.restore(saved)
        click.echo(f"tmux-main restored from the save of {saved.when}")
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

    launch.tell_settings(current_server("apply the settings", "tmux runs it when it reads its configuration"))


@group.group(cls=Group)
def template() -> None:
    """Share sessions: session files in a team's git repository, imported by each member."""


@template.command("list")
@options.output
def listed(form: Output) -> None:
    """List the imported templates."""
    from gpuctl.tmux import templates

    known = templates.known()
    rows = [(name, ", ".join(window.name for window in session.windows)) for name, session in known.items()]
    if form != "table":
        output.data([{"name": name, "windows": windows.split(", ")} for name, windows in rows], form)
        return
    output.table(("TEMPLATE", "WINDOWS"), rows)


@template.command()
def export() -> None:
    """Print the session of the current version, for others to import."""
    from gpuctl.tmux.launch import folder

    click.echo((folder() / "session.yml").read_text(), nl=False)


@template.command("import")
@click.argument("path", type=click.Path(exists=True, dir_okay=False))
@click.option("--name", default="", help="Name of the template.  [default: the file name]")
@options.yes
def bring(path: str, name: str, yes: bool) -> None:
    """Import a session file as a template; shows what it would run and asks for confirmation."""
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
        click.confirm(f"Keep it as the template {name}?", abort=True)
    templates.keep(name, session)
    click.echo(f"`gpuctl tmux launch --template {name}` builds it")
