"""Save measurements to the history, whichever command made them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from gpuctl.core.errors import GpuctlError

if TYPE_CHECKING:
    from gpuctl.domain.findings import Finding
    from gpuctl.nccl.model import LaunchResult


def record_results(
    kind: str,
    where: str,
    results: Sequence[LaunchResult],
    findings: Sequence[Finding],
    message: str = "saved: {} shows it in full",
) -> None:
    """Save to the history if anything ran; a failure to save is reported and does not hide the measurement."""
    from gpuctl.nccl import history

    if not results:
        return
    try:
        number = history.save_results(kind, where, results, findings)
    except GpuctlError as error:
        click.echo(f"gpuctl: {error}", err=True)
    else:
        click.echo(message.format(f"`gpuctl nccl report {number}`"), err=True)


@contextmanager
def save_partial_results(results: Sequence[LaunchResult], save: Callable[[], object]) -> Iterator[None]:
    """On an exception, save the results that exist by then and raise again."""
    try:
        yield
    except Exception:
        if results:
            save()
        raise
