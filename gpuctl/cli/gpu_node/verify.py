"""gpu-node verify: judge whether GPU hosts have, run and show the stack that their site wants."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuctl.cli.gpu_node.plan import stack_file
from gpuctl.cli.shared import findings, options, output
from gpuctl.cli.shared.report import Form, check_folder, publish, report_options
from gpuctl.core.errors import InvalidInput
from gpuctl.core.exit_codes import worst
from gpuctl.gpu_node.model import OptionalTests
from gpuctl.workflows.gpu_node_plan import PlanRequest

if TYPE_CHECKING:
    from gpuctl.domain.findings import Finding


@dataclass(frozen=True)
class VerifyRequest:
    """Hosts to verify; see `PlanRequest`. `tests`: what else to run on hosts that nobody uses."""

    inventory: str | None = None
    limit: str = ""
    stack: Path | None = None
    tests: OptionalTests = field(default_factory=OptionalTests)
    forks: int = 64
    timeout: float = 120.0


@click.command()
@options.as_request(VerifyRequest, options.inventory, options.limit, stack_file,
                    options.deep("Also run DCGM's diagnosis of this level, on hosts that nobody uses."),
                    options.nccl("Also run all_reduce over the GPUs of each host by itself, if nobody uses it."),
                    options.visit("host"))  # fmt: skip
@click.option("--strict", is_flag=True, help="Count warnings as problems.")
@report_options
def verify(request: VerifyRequest, strict: bool, form: Form, metrics: Path | None) -> None:
    """Verify the stack of every GPU host by its own tools, as before it takes jobs again.

    The running, installed and desired module are the same, nvidia-smi lists every GPU of the PCI bus, all have joined
    their NVLink fabric, and libfabric offers every EFA device. Nothing is changed; jobs may run. --nccl needs
    nccl-tests and mpirun on the hosts. Exit code 1 if a check fails or is unknown, 3 if a host was not reached.
    """
    from gpuctl.domain.findings import exit_code
    from gpuctl.domain.report import Report
    from gpuctl.workflows.gpu_node_nccl import verify_hosts

    check_folder(metrics)
    if request.tests.search_path and not request.tests.nccl:
        raise InvalidInput("verify GPU hosts", "--search-path needs --nccl", "add it, or leave --search-path out")
    started = time.monotonic()
    asked = PlanRequest(request.inventory, request.limit, request.stack, forks=request.forks, timeout=request.timeout)
    today = datetime.now().astimezone().date()
    verified = verify_hosts(asked, today, request.tests, output.unreached, lambda line: click.echo(line, err=True))
    results = [finding for rows in verified.findings.values() for finding in rows]
    code = worst([exit_code(results, strict), 3 if verified.unasked else 0])
    count = output.plural(len(verified.findings), "host")
    click.echo(f"queried {count} in {time.monotonic() - started:.1f} s", err=True)
    details = {"unasked": dict(verified.unasked), "left_out": list(verified.left_out)}
    target = str(request.inventory or "localhost")
    report = Report("gpu-node verify", {target: results}, details, strict=strict, code=code)
    publish(report, form, metrics, lambda: _show(results, verified.left_out))
    raise click.exceptions.Exit(code)


def _show(results: Sequence[Finding], left_out: Sequence[str]) -> None:
    findings.show(results)
    if left_out:
        click.echo(f"not verified, without a gpu_stack: {output.names(left_out)}")
