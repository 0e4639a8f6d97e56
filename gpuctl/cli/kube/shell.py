"""kube shell, switching inside it, and the hidden commands that its start-up files call."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import click

# For arguments that belong to kubectl.
AS_THEY_ARE = {"ignore_unknown_options": True, "help_option_names": []}


@click.command()
@click.option("--shell", "program", metavar="PROGRAM", default="", help="bash or zsh.  [default: the login shell]")
def shell(program: str) -> None:
    """Start a shell with its own kubeconfig, so that switching in it affects no other shell.

    The prompt shows context and namespace, coloured by stage. The shell has the aliases k, kgp, kgpa, kd, ke and kdel,
    and the commands kctx, kns, kpod, kwatch-resources and port-forward-hyperpod. In a production context, destructive
    commands ask for confirmation.
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
    from gpuctl.core import settings
    from gpuctl.edges.kube import config
    from gpuctl.kube.prompt import write

    write(path, config.files(), settings.load())


@click.command(hidden=True)
@click.argument("path", type=click.Path(path_type=Path))
def remake(path: Path) -> None:
    """Rebuild the private kubeconfig of a running shell."""
    from gpuctl.kube.shell import remake as again

    again(path)


@click.command(hidden=True)
@click.argument("path", type=click.Path(path_type=Path))
def leave(path: Path) -> None:
    """Keep what was added to the private kubeconfig of an ending shell, and print where."""
    from gpuctl.kube.shell import leave as keep

    kept = keep(path)
    if kept:
        click.echo(str(kept), err=True)


@click.command(hidden=True, context_settings=AS_THEY_ARE)
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
            click.echo("not done", err=True)
            sys.exit(1)


commands = (shell, switch_context, switch_namespace, prompt, remake, leave, guard)
