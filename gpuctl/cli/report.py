"""report: the state of a fleet as a page that can be mailed."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuctl.cli.shared import files, options, output
from gpuctl.cli.shared.click_groups import Group
from gpuctl.core.exit_codes import worst

if TYPE_CHECKING:
    from gpuctl.domain.findings import Finding
    from gpuctl.nccl.history import Measured
    from gpuctl.nodes.model import Node
    from gpuctl.pages.page import Section

File = click.Path(dir_okay=False, path_type=Path)
WRITE = "write the page"
NODE_HEADERS = ("node", "type", "GPUs", "use", "memory", "utilisation")
USER_HEADERS = ("node", "GPUs", "user", "job or container", "memory", "since")


@dataclass(frozen=True)
class FleetRequest:
    """The hosts to describe and the file for the page; `timeout` in seconds."""

    inventory: str | None
    limit: str
    html: Path
    forks: int
    timeout: float


@click.group("report", cls=Group)
def report() -> None:
    """Write the state of a fleet as one HTML page without scripts, for mail, tickets and hand-overs."""


@report.command()
@options.as_request(
    FleetRequest,
    options.inventory,
    options.limit,
    click.option("--html", metavar="FILE", type=File, required=True, help="File for the page."),
    options.visit("node"),
)
def fleet(request: FleetRequest) -> None:
    """Ask all nodes, and write what is wrong, who uses which GPUs, and the last NCCL measurement to one page.

    The findings are those of `gpuctl audit`, the users those of `gpuctl nodes`; nothing is changed on a node.
    Exit code 1 for FAIL and UNKNOWN, 3 if a node was not reached; the page is written all the same.
    """
    from gpuctl.domain.findings import exit_code
    from gpuctl.hosts import plan as host_plan
    from gpuctl.pages.page import Page, render
    from gpuctl.workflows import fleet_state

    hosts = host_plan.targets(host_plan.find_inventory(request.inventory), request.limit)
    name = request.inventory or "localhost"
    files.check_folder(request.html, WRITE)
    state = fleet_state.ask(hosts, request.forks, request.timeout, name, output.unreached)
    for note in state.notes:
        click.echo(f"note: {note}", err=True)
    about = f"Read {time.strftime('%Y-%m-%d %H:%M %Z')} from {output.plural(len(hosts), 'node')} of {name}."
    sections = [
        _summary(state.nodes, state.findings),
        _findings(state.findings),
        *_nodes(state.nodes),
        *_nccl(state.measured, name),
    ]
    files.write(request.html, render(Page(f"GPU fleet {name}", about, sections)), WRITE)
    click.echo(f"wrote {request.html}", err=True)
    sys.exit(worst([exit_code(state.findings), 3 if state.unreached else 0]))


def _summary(nodes: Sequence[Node], findings: Sequence[Finding]) -> Section:
    from gpuctl.domain.findings import SEVERITY
    from gpuctl.nodes.summary import groups
    from gpuctl.pages.page import Section, Table

    counts = Counter(one.verdict for one in findings)
    rows = [(str(verdict), counts[verdict]) for verdict in reversed(SEVERITY)]
    table = Table(("verdict", "findings"), rows, "Findings of the audit by verdict", frozenset({1}))
    return Section("Summary", [str(group) for group in groups(nodes)], tables=[table])


def _findings(findings: Sequence[Finding]) -> Section:
    from gpuctl.domain.findings import Verdict
    from gpuctl.pages.page import Section

    wrong = [one for one in findings if one.verdict is not Verdict.OK]
    if findings and not wrong:
        return Section("Findings", ["Every check of every node is OK."])
    return Section("Findings", findings=wrong)


def _nodes(nodes: Sequence[Node]) -> list[Section]:
    from gpuctl.cli.nodes import draw
    from gpuctl.pages.page import Section, Table

    users = [[node.name, *row[:5]] for node in nodes for row in draw.below(node)]
    sections = [Section("Nodes", tables=[Table(NODE_HEADERS, [draw.head(node) for node in nodes])])]
    return [*sections, Section("Users and unused GPUs", tables=[Table(USER_HEADERS, users)])] if users else sections


def _nccl(measured: Measured | None, name: str) -> list[Section]:
    from gpuctl.nccl.report.page import Content, sections
    from gpuctl.pages.page import Section

    if measured is None:
        why = f"No NCCL test of {name} was run from this machine: `gpuctl nccl run --inventory {name}` runs one."
        return [Section("NCCL", [why])]
    about = (
        f"Measurement {measured.id} ({measured.kind}) of {measured.at} by {measured.by}, not repeated for this page."
    )
    content = Content("", "", measured.results, measured.findings)
    return [Section("NCCL", [about], findings=measured.findings), *sections(content)]
