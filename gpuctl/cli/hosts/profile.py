"""profile: list, show, explain, diff, capture."""

from __future__ import annotations

import time

import click

from gpuctl import engine
from gpuctl.cli.shared import options, output
from gpuctl.cli.shared.click_groups import Group
from gpuctl.cli.shared.output import Output
from gpuctl.core.errors import InvalidInput
from gpuctl.hosts.profiles import load


@click.group("profile", cls=Group)
def group() -> None:
    """List, show, explain, compare and capture the profiles that hosts are tuned to."""


@group.command("list")
@options.output
def list_profiles(form: Output) -> None:
    """List the profiles: those shipped with gpuctl, and your own."""
    rows, mistakes = [], []
    for file in engine.profiles.names():
        try:
            rows.append((file.name, file.path, load(str(file.path))))
        except InvalidInput as error:  # the others are listed nevertheless
            mistakes.append(str(error))
    if form == "table":
        cells = [(name, len(p.rows), " > ".join(p.extends) or "-", p.about) for name, _, p in rows]
        output.table(("PROFILE", "KNOBS", "EXTENDS", "ABOUT"), cells)
    else:
        plain = [{"name": name, "path": str(path), "about": p.about, "knobs": len(p.rows)} for name, path, p in rows]
        output.data(plain, form)
    if mistakes:
        raise InvalidInput("list every profile", "\n  ".join(mistakes))


@group.command()
@click.argument("name")
@options.output
def show(name: str, form: Output) -> None:
    """Show every setting of a profile, and its overlays for particular hosts."""
    profile = load(name)
    if form != "table":
        output.data(engine.profiles.compiled(profile), form)
        return
    output.table(("KNOB", "VALUE", "WHY"), [(r.name, r.written, r.why) for r in profile.rows.values()])
    for overlay in profile.overlays:
        conditions = "; ".join(f"{fact} is {' or '.join(patterns)}" for fact, patterns in overlay.when.items())
        click.echo(f"\n{overlay.name} (if {conditions}): {overlay.why}")
        output.table(("  KNOB", "VALUE", "WHY"), [(f"  {r.name}", r.written, r.why) for r in overlay.rows.values()])
        if overlay.drop:
            click.echo(f"  not set: {', '.join(overlay.drop)}")


@group.command()
@click.argument("knob")
@options.output
def explain(knob: str, form: Output) -> None:
    """Explain a setting: its value in each profile, the reason and source, when not to use it, how to read it back."""
    try:
        explanations = engine.profiles.explain(knob)
    except engine.profiles.ProfileError as error:
        raise InvalidInput(
            f"explain {knob!r}", "\n  ".join(map(str, error.mistakes)), "correct that profile first"
        ) from error
    if not explanations:
        known = sorted({name for file in engine.profiles.names() for name in load(str(file.path)).rows})
        hint = engine.profiles.did_you_mean(knob, known) or "`gpuctl profile show training` lists the names"
        raise InvalidInput(f"explain {knob!r}", "no profile has it", hint)
    if form != "table":
        output.data([{"profile": e.profile, "overlay": e.overlay, **vars(e.row)} for e in explanations], form)
        return
    click.echo(knob)
    for explanation in explanations:
        row, overlay = explanation.row, f" ({explanation.overlay})" if explanation.overlay else ""
        click.echo(f"\n{explanation.profile}{overlay}: {row.written}")
        texts = {"why": row.why, "source": row.source, "not for": row.not_for, "read back": row.read_back}
        for label, text in texts.items():
            click.echo(f"  {label + ':':<11}{text or '-'}")


@group.command()
@click.argument("a")
@click.argument("b")
@options.output
def diff(a: str, b: str, form: Output) -> None:
    """Compare two profiles and print the settings that differ."""
    differences = engine.profiles.diff(load(a), load(b))
    if form != "table":
        output.data([difference._asdict() for difference in differences], form)
        return
    rows = [(d.knob, d.overlay or "every host", d.a or "-", d.b or "-") for d in differences]
    output.table(("KNOB", "ON", a.upper(), b.upper()), rows)


@group.command()
@click.argument("host")
@options.inventory
def capture(host: str, inventory: str | None) -> None:
    """Print a profile with the settings of a host that is already tuned well."""
    from gpuctl.hosts import plan

    click.echo(plan.capture(inventory, host, time.strftime("%Y-%m-%d")), nl=False)
