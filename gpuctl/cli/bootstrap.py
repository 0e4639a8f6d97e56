"""bootstrap: set up a workstation or GPU hosts, and derive pins for tools."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any, TextIO

import click

from gpuctl.cli.shared import completion, options, output
from gpuctl.cli.shared.click_groups import Group
from gpuctl.cli.shared.output import Output


@click.group("bootstrap", cls=Group, members={"gpu-node": "gpuctl.cli.gpu_node.bootstrap:bootstrap"})
def group() -> None:
    """Set up a workstation, or GPU hosts from the driver to the container toolkit."""


@group.command()
@options.check
@click.option("--diff", is_flag=True, help="Show the changes to the shell files.")
@click.option("--undo", is_flag=True, help="Restore the state before gpuctl; packages stay.")
@click.option(
    "--force", is_flag=True, help="With --undo or --remove: also replace files that you changed since (a copy is kept)."
)
@click.option("--strict", is_flag=True, help="Exit with 1 even if only an optional tool is missing.")
@click.option(
    "--tool",
    "tools",
    metavar="NAME",
    multiple=True,
    help="Install only this tool; repeatable.",
    shell_complete=completion.tools,
)
@click.option(
    "--remove",
    metavar="NAME",
    multiple=True,
    help="Remove this tool instead of installing; repeatable.",
    shell_complete=completion.tools,
)
@click.option(
    "--start-tmux/--no-start-tmux",
    default=None,
    help="Start the session tmux-main whenever a terminal opens.  [default: as in the last run, else no]",
)
@click.option(
    "--packages/--no-packages",
    default=None,
    help="Install distribution packages.  [default: as in the last run, else yes]",
)
@options.sure
@options.output
@click.pass_context
def laptop(
    context: click.Context,
    check: bool,
    diff: bool,
    undo: bool,
    force: bool,
    strict: bool,
    tools: tuple[str, ...],
    remove: tuple[str, ...],
    start_tmux: bool | None,
    packages: bool | None,
    yes: bool,
    form: Output,
) -> None:
    """Install tools, and add them and shell completion to the files of bash, zsh and fish. Safe to run again.

    A tool that is new enough stays. Otherwise it comes from the distribution's package if that is new enough, else from
    a release archive with a pinned sha256 (downloaded from $GPUCTL_MIRROR if set). --undo restores every file that was
    replaced. If sudo needs a password, it asks on the terminal. Exit code 1 if a tool is missing that is not optional.
    """
    from gpuctl.workstation.flow import bootstrap
    from gpuctl.workstation.model import BootstrapRequest

    if remove and (undo or tools):
        raise click.UsageError("--remove cannot be combined with --undo or --tool")
    if undo and tools:
        raise click.UsageError(
            "--undo is for everything and cannot be combined with --tool; --remove NAME removes one tool"
        )
    if undo and (strict or start_tmux is not None or packages is not None):
        raise click.UsageError(
            "--undo installs nothing: it cannot be combined with --strict, --[no-]start-tmux or --[no-]packages"
        )
    if undo and not check and not yes and output.on_terminal():
        click.confirm("Restore everything as it was before gpuctl?", abort=True, err=True)
    request = BootstrapRequest(check, undo, force, strict, tools, remove, start_tmux, packages)
    result = bootstrap(request, lambda line: click.echo(line, err=True))
    if form == "table":
        _show(result.answer, diff, check)
    else:
        output.data(dict(result.answer), form)
    context.exit(result.exit_code)


def _show(answer: Mapping[str, Any], diff: bool, check: bool) -> None:
    from gpuctl.workstation.judge import summary

    if "undone" in answer:
        output.table(("PATH", "STATE", "DETAILS"), [(r["path"], _undone(r, check), r["why"]) for r in answer["undone"]])
    else:
        tools = answer["tools"]
        rows = [(t["tool"], t["version"] or "-", _state(t, check), t["source"] or "-", t["why"]) for t in tools]
        output.table(("TOOL", "VERSION", "STATE", "SOURCE", "WHY"), rows)
    for file in answer.get("files", []):
        _show_file(file, diff, check)
    if line := summary(answer):
        click.echo(line)


def _state(tool: Mapping[str, Any], check: bool) -> str:
    return "WOULD INSTALL" if check and tool["changed"] else str(tool["state"])


def _undone(row: Mapping[str, Any], check: bool) -> str:
    would = {"RESTORED": "WOULD RESTORE", "REMOVED": "WOULD REMOVE"} if check and row["changed"] else {}
    return would.get(row["state"], str(row["state"]))


def _show_file(file: Mapping[str, Any], diff: bool, check: bool) -> None:
    if file["changed"]:
        click.echo(f"{file['path']}: the marked block {'would be' if check else 'was'} written")
    elif file["why"]:
        click.echo(f"{file['path']}: {file['why']}")
    if diff and file["changed"]:
        sides = file["before"].splitlines(), file["after"].splitlines()
        click.echo("\n".join(difflib.unified_diff(*sides, file["path"], file["path"], lineterm="")))


@group.command()
@click.argument("tool", shell_complete=completion.tools)
@click.argument("version")
@click.argument("checksums", type=click.File(errors="replace"))
@click.option(
    "--for",
    "system",
    metavar="OS/ARCH",
    default="",
    help="System that a file with a single bare hash is for, such as linux/amd64.",
)
def pin(tool: str, version: str, checksums: TextIO, system: str) -> None:
    """Print the pins of TOOL at VERSION for your tools.yml, from its publisher's checksum file CHECKSUMS.

    Download that file from the publisher: a checksum from the mirror of the archives proves nothing.
    """
    from gpuctl.core.errors import InvalidInput
    from gpuctl.workstation.pins import pins, require_valid, shows_version
    from gpuctl.workstation.tools import release_of

    release = release_of(tool)
    require_valid(release, version, system)
    new_pins = pins(release, version, checksums.read(), system)
    if not new_pins:
        hint = "if the file holds one bare hash, pass its system with --for" if not system else ""
        raise InvalidInput(f"pin {tool} {version}", f"the checksum file has no hash for an archive of {tool}", hint)
    if not shows_version(release, system):
        click.echo(f"the file does not name a version: make sure that it is for {version}", err=True)
    output.data({"version": version, "pins": new_pins}, "yaml")
