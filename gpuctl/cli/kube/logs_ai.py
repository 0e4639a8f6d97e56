"""kube logs-ai: the evidence of failed pods, and a program's answer to the question that follows from it."""

from __future__ import annotations

import click

from gpuctl.cli.kube.pod import container, scope
from gpuctl.cli.shared import options, output


@click.command("logs-ai")
@click.argument("pod_name", metavar="[POD]", default="")
@click.option(
    "--selector", "-l", metavar="LABELS", default="", help="Read the pods with these labels, the worst first."
)
@container
@click.option(
    "--lines", type=click.IntRange(1, 100_000), default=2000, show_default=True, help="Last lines of each log to read."
)
@click.option(
    "--most",
    type=click.IntRange(2000, 1_000_000),
    default=24_000,
    show_default=True,
    help="Characters of the text, question included.",
)
@click.option("--question", metavar="TEXT", default="", help="Ask this.  [default: a question made from the findings]")
@click.option("--send", is_flag=True, help="Send the text to the command `ask` of the settings (default: claude -p).")
@click.option("--program", metavar="COMMAND", default="", help="Send the text to this command, such as 'claude -p'.")
@options.sure
@scope
def logs_ai(
    pod_name: str,
    selector: str,
    container: str,
    lines: int,
    most: int,
    question: str,
    send: bool,
    program: str,
    yes: bool,
    context: str,
    namespace: str,
) -> None:
    """Print what explains a failed POD, with secrets removed, and pass it to an AI in one shot.

    The text has a question, gpuctl's findings, facts of pod and node, their events, and of each log, also of the run
    before a restart, the lines around the first failure and the last lines. It fits --most characters. With --send or
    --program, exactly the text that was printed is passed once, after confirmation, to the program's standard input.
    """
    import shlex

    from gpuctl.core import settings
    from gpuctl.kube import ask
    from gpuctl.kube.logs_ai import flow
    from gpuctl.kube.pod import Scope, kubectl_for

    if bool(pod_name) == bool(selector):
        raise click.UsageError("name one POD, or select pods with -l LABELS")
    if yes and not (send or program):
        raise click.UsageError("--yes needs --send or --program")
    argv = ask.program(program, settings.load().ask) if send or program else ()
    request = flow.Request(pod_name, selector, container, lines, most, question)
    with output.slow_notice("reading logs and events"):
        bundle = flow.gather(kubectl_for(Scope(context, namespace)), request)
    click.echo(bundle.text, nl=False)
    click.echo(f"{output.plural(bundle.secrets, 'secret')} removed, {len(bundle.text)} characters", err=True)
    for note in bundle.notes:
        click.echo(f"note: {note}", err=True)
    if not argv:
        return
    name = shlex.join(argv)
    if not yes:
        click.confirm(f"Send this to `{name}`?", abort=True, err=True)
    click.echo(f"\n=== answer of {name} ===")
    ask.ask(argv, bundle.text)
