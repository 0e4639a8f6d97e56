"""explain: what a name means, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click

from gpuctl.cli.shared import completion, options, output
from gpuctl.cli.shared.output import Output

if TYPE_CHECKING:
    from gpuctl.workflows.explain import Explanation


@click.command()
@click.argument("name", nargs=-1, required=True, shell_complete=completion.explained)
@options.output
def explain(name: tuple[str, ...], form: Output) -> None:
    """Explain an error number, a check, a reason for low clocks, an exit code or a setting: meaning, action, source.

    NAME is `xid 79` (or `79`), `sxid 20034`, a clock event reason such as `hw_thermal_slowdown` or `0x40`, `dcgm 118`
    or the name of a DCGM error, a check such as `gpu-count` or `doctor hang ranks`, a kernel fault such as `efa-dead`,
    a variable such as `NCCL_NET`, a key of settings.yml, `exit 3`, or a knob of the profiles. A mask such as 0x44
    explains each of its bits.
    """
    from dataclasses import asdict

    from gpuctl.workflows.explain import explain as explanations_of

    explanations = explanations_of(" ".join(name))
    if form != "table":
        output.data([asdict(explanation) for explanation in explanations], form)
        return
    click.echo("\n".join(lines(explanations)))


def lines(explanations: Sequence[Explanation]) -> Iterator[str]:
    """Lines of all explanations, with an empty one between two."""
    for number, explanation in enumerate(explanations):
        if number:
            yield ""
        yield from _lines(explanation)


def _lines(explanation: Explanation) -> Iterator[str]:
    from gpuctl.engine import printable

    yield printable(f"{explanation.name}  {explanation.title}")
    texts = {
        "meaning": explanation.meaning,
        "action": explanation.action,
        **explanation.details,
        "read back": explanation.read_back,
        "source": explanation.source,
    }
    width = max(map(len, texts)) + 1
    for label, text in texts.items():
        if text:
            yield printable(f"  {label + ':':<{width}} {text}")
