"""profile: list, show, explain, diff, capture."""

from __future__ import annotations

import time

import click

from gpuctl import engine
from gpuctl.cli.shared import options, output
from gpuctl.cli.shared.click_groups import Group
from gpuctl.cli.shared.output import Output
from gpuctl.core.errors import GpuctlError, InvalidInput


@click.group("profile", cls=Group)
def group() -> None:
    """The profiles hosts are tuned to: list, show, explain, compare, write."""


def load(name: str) -> engine.profiles.Profile:
    """A profile by name or path, or an error that names every mistake in it."""
    try:
        return engine.profiles.load(name)
    except engine.profiles.ProfileError as error:
        wrong = "\n  ".join(map(str, error.mistakes))
        hint = "`gpuctl profile list` names the profiles" if "no profile is called" in wrong else ""
        raise InvalidInput(f"use the profile {name!r}", wrong, hint) from error


@group.command("list")
@options.output
def listed(form: Output) -> None:
    """List the profiles: those that come with gpuctl, and your own."""
    found, wrong = [], []
    for each in engine.profiles.names():
        try:
            found.append((each, load(str(each.path))))
        except InvalidInput as error:  # the others are listed all the same
            wrong.append(str(error))
    _list(found, form)
    if wrong:
        raise InvalidInput("list every profile", "\n  ".join(wrong))


def _list(found: list[tuple[engine.profiles.ProfileFile, engine.profiles.Profile]], form: Output) -> None:
    if form != "table":
        output.data(
            [{"name": f.name, "path": str(f.path), "about": p.about, "knobs": len(p.rows)} for f, p in found],
            form,
        )
        return
    rows = [(f.name, len(p.rows), " > ".join(p.extends) or "-", p.about) for f, p in found]
    output.table(("PROFILE", "KNOBS", "EXTENDS", "ABOUT"), rows)


@group.command()
@click.argument("name")
@options.output
def show(name: str, form: Output) -> None:
    """Show every setting of a profile, and its overlays for some hosts."""
    profile = load(name)
    if form != "table":
        output.data(engine.profiles.compiled(profile), form)
        return
    output.table(("KNOB", "VALUE", "WHY"), [(r.name, r.written, r.why) for r in profile.rows.values()])
    for overlay in profile.overlays:
        conditions = "; ".join(f"{fact} is {' or '.join(patterns)}" for fact, patterns in overlay.when.items())
        click.echo(f"\n{overlay.name} (where {conditions}): {overlay.why}")
        output.table(("  KNOB", "VALUE", "WHY"), [(f"  {r.name}", r.written, r.why) for r in overlay.rows.values()])
        if overlay.drop:
            click.echo(f"  left alone: {', '.join(overlay.drop)}")


@group.command()
@click.argument("knob")
@options.output
def explain(knob: str, form: Output) -> None:
    """Say what a setting is for: its value in each profile, why, from where, whom it does not suit, how to see it."""
    try:
        found = engine.profiles.explain(knob)
    except engine.profiles.ProfileError as error:
        raise InvalidInput(
            f"explain {knob!r}", "\n  ".join(map(str, error.mistakes)), "mend that profile first"
        ) from error
    if not found:
        known = sorted({name for each in engine.profiles.names() for name in load(str(each.path)).rows})
        hint = engine.profiles.did_you_mean(knob, known) or "`gpuctl profile show training` lists the names"
        raise InvalidInput(f"explain {knob!r}", "no profile has it", hint)
    if form != "table":
        output.data([{"profile": e.profile, "overlay": e.overlay, **vars(e.row)} for e in found], form)
        return
    click.echo(knob)
    for each in found:
        row, where = each.row, f" ({each.overlay})" if each.overlay else ""
        click.echo(f"\n{each.profile}{where}: {row.written}")
        told = {"why": row.why, "source": row.source, "not for": row.not_for, "read back": row.read_back}
        for label, text in told.items():
            click.echo(f"  {label + ':':<11}{text or '-'}")


@group.command()
@click.argument("a")
@click.argument("b")
@options.output
def diff(a: str, b: str, form: Output) -> None:
    """Compare two profiles: the settings that are not the same in both."""
    found = engine.profiles.diff(load(a), load(b))
    if form != "table":
        output.data([each._asdict() for each in found], form)
        return
    rows = [(e.knob, e.overlay or "every host", e.a or "-", e.b or "-") for e in found]
    output.table(("KNOB", "ON", a.upper(), b.upper()), rows)


@group.command()
@click.argument("host")
@options.inventory
def capture(host: str, inventory: str | None) -> None:
    """Write a profile from a host that is already good, to standard output."""
    from gpuctl.hosts import flow
    from gpuctl.hosts.inventory import DEFAULT, find

    hosts = flow.targets(find(DEFAULT if inventory is None else inventory), host)
    if len(hosts) != 1:
        raise InvalidInput(f"capture {host!r}", f"it names {len(hosts)} hosts", "name one")
    if hosts[0].needs_ansible:
        wrong = f"only Ansible can reach it: {hosts[0].needs_ansible}"
        raise GpuctlError(f"capture {host}", wrong, "use a direct login")
    visit, text = flow.capture(hosts[0], time.strftime("%Y-%m-%d"))
    if visit.answer is None:
        raise GpuctlError(f"capture {host}", visit.wrong, visit.hint)
    click.echo(text, nl=False)
