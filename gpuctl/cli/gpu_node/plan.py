"""gpu-node plan: decide the stack of GPU hosts, and print it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuctl.cli.shared import findings, options, output
from gpuctl.cli.shared.report import Form, check_folder, publish, report_options
from gpuctl.core.exit_codes import worst
from gpuctl.engine import printable
from gpuctl.workflows.gpu_node_plan import PlanRequest

if TYPE_CHECKING:
    from gpuctl.domain.findings import Finding
    from gpuctl.gpu_node.model import Component, StackPlan
    from gpuctl.workflows.gpu_node_plan import FleetPlan

File = click.Path(dir_okay=False, path_type=Path)
LABEL_WIDTH = 18
stack_file = click.option(
    "--stack",
    metavar="FILE",
    type=File,
    help="File with the gpu_stack of all hosts.  [default: the variable gpu_stack of the inventory]",
)


@click.command()
@options.as_request(
    PlanRequest,
    options.inventory,
    options.limit,
    stack_file,
    click.option("--from", "source", metavar="FILE", type=File, help="Use the facts of a file, and query no host."),
    click.option("--save", metavar="FILE", type=File, help="Save the facts to this file."),
    options.visit("host"),
)
@click.option("--strict", is_flag=True, help="Count warnings as problems.")
@report_options
def plan(request: PlanRequest, strict: bool, form: Form, metrics: Path | None) -> None:
    """Show which driver, fabric services and packages every GPU host would get, and why, or why it is refused.

    Nothing is installed or written on a host: `gpuctl bootstrap gpu-node` does that. Packages are resolved on the
    host, with the package lists it has. Exit code 1 if a host is refused or unknown, 3 if one was not reached.
    """
    from gpuctl.domain.findings import exit_code
    from gpuctl.domain.report import Report
    from gpuctl.workflows.gpu_node_plan import plan_hosts

    check_folder(metrics)
    started = time.monotonic()
    fleet = plan_hosts(request, datetime.now().astimezone().date(), output.unreached)
    results = [*unreached(fleet), *(finding for made in fleet.plans for finding in made.findings)]
    code = worst([exit_code(results, strict), 3 if fleet.unasked else 0])
    if request.source is None:
        count = output.plural(len(fleet.plans) + len(fleet.unasked), "host")
        click.echo(f"queried {count} in {time.monotonic() - started:.1f} s", err=True)
    hosts = {made.host: _as_dict(made) for made in fleet.plans}
    details = {"hosts": hosts, "unasked": dict(fleet.unasked), "left_out": list(fleet.left_out)}
    target = str(request.source or request.inventory or "localhost")
    report = Report("gpu-node plan", {target: results}, details, strict=strict, code=code)
    publish(report, form, metrics, lambda: show(fleet, results))
    raise click.exceptions.Exit(code)


def unreached(fleet: FleetPlan) -> list[Finding]:
    from gpuctl.domain.findings import unknown

    return [
        unknown("facts", host, reason, "repair the login, and plan again") for host, reason in fleet.unasked.items()
    ]


def _as_dict(made: StackPlan) -> dict[str, Any]:
    """JSON form of a plan; its findings are in the report."""
    return {
        "state": made.state,
        "gpus": made.gpus,
        "driver": made.driver or None,
        "flavour": {"value": made.flavour.value, "why": made.flavour.why},
        "fabric": {"value": made.fabric.value, "why": made.fabric.why},
        "components": [
            {
                "name": part.name,
                "desired": part.desired,
                "installed": part.installed,
                "changes": part.changes,
                "packages": list(part.packages),
                "removes": list(part.removes),
                "why": part.why,
            }
            for part in made.components
        ],
        "services": list(made.services),
        "modules": list(made.modules),
        "module_stream": made.module_stream or None,
        "packages": list(made.packages),
        "holds": list(made.holds),
        "pin": made.pin or None,
        "reboot": made.reboot,
        "reboot_why": made.reboot_why,
        "transaction": None
        if made.installs is None
        else {"installs": dict(made.installs), "removes": dict(made.removes or {})},
    }


def show(fleet: FleetPlan, results: Sequence[Finding]) -> None:
    """One line for hosts alike, then the reasons of each group, then all findings."""
    from gpuctl.domain.findings import Verdict
    from gpuctl.gpu_node.plan import alike

    groups = list(alike(fleet.plans).items())
    if groups:
        rows = [(output.names(hosts), *_row(made)) for made, hosts in groups]
        output.table(("HOSTS", "STATE", "GPUS", "DRIVER", "FABRIC", "REBOOT"), rows)
    for made, hosts in groups:
        click.echo(f"\n{output.names(hosts)}: {made.state}")
        for label, text in _reasons(made):
            click.echo(printable(f"  {label:{LABEL_WIDTH}} {text}"))
    problems = [finding for finding in results if finding.verdict is not Verdict.OK]
    if problems:
        click.echo()
        findings.show(problems)
    click.echo(f"\n{_summary(fleet)}")
    if fleet.left_out:
        click.echo(f"not planned, without a gpu_stack: {output.names(fleet.left_out)}")


def _row(made: StackPlan) -> tuple[str, ...]:
    flavour = {None: "unknown module", "none": ""}.get(made.flavour.value, f"{made.flavour.value} module")
    driver = ", ".join(text for text in (made.driver or "none", flavour if made.driver else "") if text)
    reboot = {True: "yes", False: "no", None: "unknown"}[made.reboot]
    return made.state, made.gpus, driver, made.fabric.value or "unknown", reboot


def _reasons(made: StackPlan) -> Iterator[tuple[str, str]]:
    for part in made.components:
        yield part.name, _component(part)
    yield "fabric", f"{made.fabric.value or 'unknown'}: {made.fabric.why}"
    rows = {
        "services": made.services,
        "modules at boot": made.modules,
        "module stream": (made.module_stream,) if made.module_stream else (),
        "packages": made.packages,
        "hold": made.holds if made.packages else (),
        "pin": (made.pin,) if made.pin and made.packages else (),
    }
    for label, values in rows.items():
        if values:
            yield label, " ".join(values)
    if made.installs is not None:
        yield "transaction", f"{output.plural(len(made.installs), 'package')}, {len(made.removes or {})} removed"
    yield "reboot", f"{ {True: 'yes', False: 'no', None: 'unknown'}[made.reboot] }: {made.reboot_why}"


def _component(part: Component) -> str:
    installed = {None: "installed: unknown", "": "not installed"}.get(part.installed, f"installed: {part.installed}")
    change = {True: "install", False: "nothing to do", None: "unknown"}[part.changes]
    removes = f"; remove {output.names(part.removes)}" if part.removes else ""
    return f"{part.desired} ({installed}): {change}{removes}" + (f"; {part.why}" if part.why else "")


def _summary(fleet: FleetPlan) -> str:
    states: dict[str, int] = {}
    for made in fleet.plans:
        states[made.state] = states.get(made.state, 0) + 1
    if fleet.unasked:
        states["not reached"] = len(fleet.unasked)
    count = output.plural(len(fleet.plans) + len(fleet.unasked), "host")
    return f"{count}: {', '.join(f'{number} {state}' for state, number in states.items())}"
