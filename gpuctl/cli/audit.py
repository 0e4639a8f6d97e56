"""audit: judge recorded kernel logs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuctl.cli.shared import findings
from gpuctl.cli.shared.report import Form, check_folder, publish, report_options

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuctl.domain.findings import Finding

LOG = click.Path(path_type=Path, allow_dash=True)


@click.command()
@click.option(
    "--from", "logs", type=LOG, metavar="FILE", multiple=True, required=True,
    help="Kernel log to judge, plain or gzipped; - is standard input. More files may follow.",
)  # fmt: skip
@click.argument("files", nargs=-1, metavar="[FILE]...", type=LOG)
@report_options
def audit(logs: tuple[Path, ...], files: tuple[Path, ...], form: Form, metrics: Path | None) -> None:
    """Judge the GPU errors in kernel logs: Xids, SXids and lost GPUs, with the action that NVIDIA gives for each.

    Any output of dmesg, journalctl or a log collector will do. A file without kernel messages is UNKNOWN. Exit status
    1 for FAIL and UNKNOWN, 2 for files that cannot be read.
    """
    from gpuctl.audit import judge, knowledge, read
    from gpuctl.domain.report import Report

    check_folder(metrics)
    paths = dict.fromkeys([*logs, *files])
    catalogue = knowledge.catalogue()
    targets = {str(path): judge.judge(str(path), read.read(path), catalogue) for path in paths}
    report = Report("audit", targets)
    publish(report, form, metrics, lambda: _show(targets))
    sys.exit(report.exit_code)


def _show(targets: Mapping[str, list[Finding]]) -> None:
    from gpuctl.domain.findings import overall
    from gpuctl.engine import printable

    for name, judged in targets.items():
        click.echo(printable(f"{overall(judged)}  {name}"))
        findings.show(judged, indent="  ", most=None)
