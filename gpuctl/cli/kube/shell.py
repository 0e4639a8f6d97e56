"""kube shell, switching inside it, and the hidden commands that its start-up files call."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import click

# The arguments belong to kubectl.
UNPARSED = {"ignore_unknown_options": True, "help_option_names": []}


@click.command()
@click.option("--shell", "program", metavar="PROGRAM", default="", help="bash or zsh.  [default: the login shell]")
def shell(program: str) -> None:
    """Start a shell with its own copy of the kubeconfig, so that switching contexts affects no other shell.

    The prompt shows the context and namespace, coloured by stage: red for production. In a production context,
    destructive kubectl commands ask for confirmation. The shell has the aliases k, kgp, kgpa, kd, ke and kdel, and the
    commands kctx, kns, kpod, kwatch-resources and port-forward-hyperpod.
    """
    from gpuctl.kube.shell import start

    start(program, partial(click.echo, err=True))


@click.command("context")
@click.argument("name", default="")
def switch_context(name: str) -> None:
    """Switch this shell to the context NAME ("-" for the previous one), or choose one."""
    from gpuctl.core import settings
    from gpuctl.kube import choose, switch

    switch.private_copy()
    chosen = name or choose.context(settings.load())
    if chosen:
        click.echo(f"switched to the context {switch.to_context(chosen)}")


@click.command("namespace")
@click.argument("name", default="")
@click.option("--force", is_flag=True, help="Do not check that it exists.")
def switch_namespace(name: str, force: bool) -> None:
    """Switch this shell to the namespace NAME, or choose one."""
    from gpuctl.kube import choose, switch

    switch.private_copy()
    chosen = name or choose.namespace()
    if chosen:
        click.echo(f"switched to the namespace {switch.to_namespace(chosen, force)}")


@click.command(hidden=True)
@click.argument("path", type=click.Path(path_type=Path))
def prompt(path: Path) -> None:
    """Write what the prompt shows to a file that the shell reads."""
    from gpuctl.kube.prompt import refresh

    refresh(path)


@click.command(hidden=True)
@click.argument("path", type=click.Path(path_type=Path))
def remake(path: Path) -> None:
    """Rebuild the private kubeconfig of a running shell."""
    from gpuctl.kube import shell as shells

    shells.remake(path)


@click.command(hidden=True)
@click.argument("path", type=click.Path(path_type=Path))
def leave(path: Path) -> None:
    """Save the entries that were added to an ending shell's private kubeconfig, and print where."""
    from gpuctl.kube import shell as shells

    saved_entries = shells.leave(path)
    if saved_entries:
        click.echo(str(saved_entries), err=True)


@click.command(hidden=True, context_settings=UNPARSED)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def guard(arguments: tuple[str, ...]) -> None:
    """Ask for confirmation before a destructive kubectl command in a production context."""
    from gpuctl.core import settings
    from gpuctl.kube.confirm import question

    prompt_text = question(arguments, settings.load())
    if not prompt_text:
        return
    try:
        terminal = Path("/dev/tty").open("r+b", buffering=0)  # noqa: SIM115 - closed with the process
    except OSError:
        click.echo(f"gpuctl: not run, as there is no terminal to confirm on: {prompt_text}", err=True)
        click.echo("  hint: `command kubectl` skips the confirmation", err=True)
        sys.exit(2)
    with terminal:
        terminal.write(f"{prompt_text} [y/N] ".encode())
        if terminal.readline().strip().lower() not in (b"y", b"yes"):
            click.echo("not run", err=True)
            sys.exit(1)


commands = (shell, switch_context, switch_namespace, prompt, remake, leave, guard)
