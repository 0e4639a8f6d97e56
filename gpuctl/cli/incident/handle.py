"""incident start, resume, replay and list: from the alert to the cause and the post-mortem."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from gpuctl.cli.nccl import baselines, sweep_options, target_options
from gpuctl.cli.shared import files, findings, options, output
from gpuctl.cli.shared.output import Output
from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.core.exit_codes import INTERRUPTED, PROBLEMS

if TYPE_CHECKING:
    from gpuctl.incident.model import Entry, Incident, IncidentRequest
    from gpuctl.workflows.incident.acts import Question

WRITE = "write the post-mortem"
MOST_FINDINGS = 3  # of one check that are printed after a step; the post-mortem has all

report = click.option(
    "--report",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for the post-mortem.  [default: beside the record]",
)
consent = click.option(
    "--yes",
    "-y",
    is_flag=True,
    help="Consent to all acts but the requeue of a job that runs or was cancelled: that is asked for.",
)


def _words(context: click.Context, parameter: click.Parameter, value: str) -> tuple[str, ...]:
    """Words of a command; `InvalidInput` for an open quote, or a text of blanks."""
    try:
        words = tuple(shlex.split(options.not_empty(context, parameter, value) or ""))
    except ValueError as error:
        hint = "quote it as for a shell: --resume-with 'sbatch train.sh'"
        raise InvalidInput("read --resume-with", f"{value!r}: {error}", hint) from error
    return words


@dataclass(frozen=True)
class StartRequest:
    """Incident to start: see `IncidentRequest`. `plan`: show the steps, and make none."""

    title: str
    log: str
    inventory: str | None
    limit: str
    nodes: str
    slurm: bool
    partition: str
    search_path: tuple[str, ...]
    ssh_args: str
    as_root: bool
    gpus: int
    begin: int
    end: int
    timeout: float
    instance: str | None
    network: str | None
    context: str
    resume_with: tuple[str, ...]
    report: Path | None
    plan: bool
    yes: bool


@click.command()
@options.as_request(
    StartRequest,
    click.argument("title", metavar="JOB|ALERT-TEXT", callback=options.not_empty),
    click.option("--log", metavar="FILE", default="", callback=options.not_empty, help="Log of the job."),
    options.inventory,
    options.limit,
    click.option("--nodes", metavar="NAME,...", default="", callback=options.not_empty, help="Only these nodes."),
    click.option("--slurm", is_flag=True, help="Nodes of this machine's Slurm cluster; of a JOB number, its nodes."),
    click.option("--partition", metavar="NAME", default="", help="With --slurm: nodes of this partition."),
    target_options.search_path,
    target_options.ssh_args,
    click.option("--as-root", is_flag=True, help="Let mpirun run as root, if that is the login user."),
    click.option(
        "--gpus-per-node",
        "gpus",
        type=click.IntRange(1),
        default=8,
        show_default=True,
        metavar="N",
        help="GPUs per node.",
    ),
    sweep_options.sizes("512M", "4G"),
    click.option(
        "--timeout",
        type=options.Finite(1),
        default=180,
        show_default=True,
        help="Seconds until a launch counts as hung.",
    ),
    click.option("--instance", metavar="NAME", help="Machine type, for its network and baseline: p5.48xlarge."),
    click.option("--network", metavar="NAME", type=sweep_options.Network(), help="Network that NCCL should use."),
    options.other_context("Kubernetes context of the nodes, to drain them.  [default: Slurm over ssh]"),
    click.option(
        "--resume-with",
        metavar="COMMAND",
        default="",
        callback=_words,
        help="Command that resumes the job, split as a shell does, run without one.  [default: requeue the Slurm JOB]",
    ),
    report,
    click.option("--plan", is_flag=True, help="Show the steps that may be made, and make none."),
    consent,
)
def start(request: StartRequest) -> None:
    """Find the cause of an incident and remedy it: log, nodes, NCCL test, isolation, audit, repair, post-mortem.

    Every step is one of gpuctl's other commands. Before each act, to drain, repair or give back a node and to resume
    the job, it asks; without a terminal and --yes it does none, and the remedy is a command to run by hand. A node in
    use is never repaired, also with --yes. Exit code 0 if a cause is named and no act went wrong, else 1; 3 if no node
    answers.
    """
    from gpuctl.workflows.incident import flow, steps

    checked = steps.check(_incident_request(request))
    _known_instance(request.instance)
    if request.plan:
        _show_plan(checked)
        return
    _check_report(request.report)
    _handle(flow.new(checked), request.report, request.yes)


def _incident_request(request: StartRequest) -> IncidentRequest:
    from gpuctl.incident.model import IncidentRequest
    from gpuctl.nccl.flow import check_sizes
    from gpuctl.nccl.model import Sweep

    check_sizes("start an incident", Sweep(begin_bytes=request.begin, end_bytes=request.end))
    return IncidentRequest(
        request.title,
        job=request.title if request.slurm and request.title.isdigit() else "",
        log=request.log,
        inventory=request.inventory,
        limit=request.limit,
        nodes=request.nodes,
        slurm=request.slurm,
        partition=request.partition,
        search_path=request.search_path,
        ssh_args=request.ssh_args,
        as_root=request.as_root,
        gpus_per_node=request.gpus,
        begin_bytes=request.begin,
        end_bytes=request.end,
        timeout=request.timeout,
        instance=request.instance,
        network=request.network,
        context=request.context,
        resume_with=request.resume_with,
    )


def _known_instance(name: str | None) -> None:
    if name is not None:
        from gpuctl.nccl.baselines import load

        baselines.known_instance(name, "start an incident", load.book())


def _show_plan(request: IncidentRequest) -> None:
    from gpuctl.incident import decide

    rows = [(number, one.step, one.why, one.command or "-") for number, one in enumerate(decide.outline(request), 1)]
    output.table(("STEP", "NAME", "WHEN AND WHY", "COMMAND"), rows)


@dataclass(frozen=True)
class ResumeRequest:
    """Incident to go on with."""

    name: str
    report: Path | None
    yes: bool


@click.command()
@options.as_request(ResumeRequest, click.argument("name", metavar="INCIDENT"), report, consent)
def resume(request: ResumeRequest) -> None:
    """Go on with an incident that was interrupted. Steps with a result and acts that were begun are not repeated."""
    from gpuctl.incident import record

    _check_report(request.report)
    incident = record.read(record.path_of(request.name))
    if incident.closed:
        click.echo(f"the incident was closed at {incident.closed}", err=True)
        _finish(incident, request.report)
    _handle(incident, request.report, request.yes)


@click.command()
@click.argument("path", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path))
@report
@options.output
def replay(path: Path, report: Path | None, form: Output) -> None:
    """Show a recorded incident: its steps with commands and numbers, its cause, and what is unknown.

    Nothing is read from nodes. FILE is the record of an incident, a JSON file.
    """
    from gpuctl.incident import postmortem, record
    from gpuctl.pages import markdown

    _check_report(report)
    incident = record.read(path)
    if form != "table":
        output.data(record.as_dict(incident), form)
    else:
        click.echo(_printable(markdown.render(postmortem.page(incident))), nl=False)
    if report is not None:
        _write(incident, report)


@click.command("list")
def list_() -> None:
    """List the incidents of this machine, the newest first."""
    from gpuctl.incident import record
    from gpuctl.incident.cause import cause

    rows = []
    for name in reversed(record.names()):
        try:
            one = record.read(record.path_of(name))
            result = cause(one)
        except InvalidInput as error:
            rows.append((name, "damaged", "-", "unknown", _printable(error.wrong)))
            continue
        except (AttributeError, KeyError, IndexError, TypeError, ValueError) as error:  # details of a step
            rows.append((name, "damaged", "-", "unknown", f"a step has other details: {type(error).__name__}"))
            continue
        state = "closed" if one.closed else "open"
        rows.append((name, state, _printable(one.request.title), result.certainty, _printable(result.text)))
    output.table(("INCIDENT", "STATE", "TITLE", "CAUSE IS", "CAUSE"), rows)


# ---- handle ----------------------------------------------------------------------------------------------------------


def _handle(incident: Incident, to: Path | None, yes: bool) -> NoReturn:
    from gpuctl.incident import record
    from gpuctl.workflows.incident import flow, steps

    click.echo(f"incident {incident.name}: {_printable(incident.request.title)}", err=True)
    try:
        with record.locked(incident.name):
            if incident.name in record.names():  # another process may have gone on with it since it was read
                incident = record.read(record.path_of(incident.name))
            closed = flow.go_on(incident, steps.Steps(incident.request, target_options.notify), _Screen(yes))
    except flow.NoAnswer as error:
        hint = f"{error.hint}; `gpuctl incident resume {incident.name}` repeats the step"
        raise GpuctlError(error.doing, error.wrong, hint) from error
    except (steps.Interrupted, KeyboardInterrupt, click.Abort):
        click.echo(f"interrupted; `gpuctl incident resume {incident.name}` goes on", err=True)
        raise click.exceptions.Exit(INTERRUPTED) from None
    _finish(closed, to)


class _Screen:
    """Prints steps and findings, asks for consent, and saves the record. `yes`: --yes was given."""

    def __init__(self, yes: bool) -> None:
        self._yes = yes

    def ask(self, question: Question) -> str:
        """Ask for consent to an act; without a terminal, --yes is the only consent."""
        click.echo(_printable(f"   {question.text}"), err=True)
        if self._yes and question.covers_yes:
            return ""
        if not sys.stdin.isatty():
            return "not done: there is no terminal for the question" + ("" if self._yes else ", and no --yes")
        return "" if click.confirm("   Do it?", err=True) else "not done: declined"

    @staticmethod
    def save(incident: Incident) -> None:
        from gpuctl.incident import record

        record.write(incident)

    @staticmethod
    def begin(entry: Entry) -> None:
        command = f"  ({entry.command})" if entry.command else ""
        click.echo(_printable(f"{entry.number}  {entry.step}: {entry.why}{command}"))

    @staticmethod
    def end(entry: Entry) -> None:
        from gpuctl.domain.findings import Verdict

        if entry.answer is None:
            return
        findings.show(
            [one for one in entry.answer.findings if one.verdict is not Verdict.OK], indent="   ", most=MOST_FINDINGS
        )
        click.echo(_printable(f"   {entry.answer.state}: {entry.answer.summary}"))


def _check_report(folder: Path | None) -> None:
    files.check_folder(folder and folder / "name", WRITE)


def _finish(incident: Incident, to: Path | None) -> NoReturn:
    from gpuctl.incident import acts, decide, record

    click.echo(_printable(decide.closing_text(incident)))
    _write(incident, to or record.folder())
    raise click.exceptions.Exit(0 if decide.is_explained(incident) and acts.is_finished_well(incident) else PROBLEMS)


def _write(incident: Incident, folder: Path) -> None:
    """Write the post-mortem as Markdown and HTML."""
    from gpuctl.incident import postmortem
    from gpuctl.pages import markdown
    from gpuctl.pages import page as pages

    page = postmortem.page(incident)
    for suffix, text in (("md", markdown.render(page)), ("html", pages.render(page))):
        path = folder / f"{incident.name}.{suffix}"
        files.write(path, text, WRITE)
        click.echo(f"wrote {path}", err=True)


def _printable(text: str) -> str:
    from gpuctl.engine import printable

    return "\n".join(map(printable, text.split("\n")))
