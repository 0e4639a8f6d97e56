"""Checks of a driver version against GPUs, CUDA and the end of its branch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import date

from gpuctl.domain.findings import Finding, fail, or_ok, unknown, warn
from gpuctl.gpu_node.model import StackRequest
from gpuctl.gpu_node.rows import Branch, GpuModel, Knowledge
from gpuctl.gpu_node.version import DriverVersion

CHECK = "driver version"


def judge_driver(
    host: str, rows: Sequence[GpuModel] | None, request: StackRequest, known: Knowledge, today: date
) -> list[Finding]:
    """Refusals and warnings of the requested driver, or one OK; nothing where the site installs none."""
    if request.driver is None or rows == ():
        return []
    branch = next((row for row in known.branches if row.branch == request.branch), None)
    if branch is None:
        message, hint = f"branch {request.branch} is not known", "add its row to gpuctl/data/gpu_stack/branches.yml"
        return [unknown(CHECK, host, message, hint)]
    findings = [
        *_end(host, branch, today),
        *_gpus(host, rows or (), request.driver, known),
        *_last(host, rows or (), branch, known),
        *_cuda(host, request, branch, known),
    ]
    return or_ok(CHECK, host, findings, f"driver {request.driver}")


def _end(host: str, branch: Branch, today: date) -> Iterator[Finding]:
    if not branch.end:
        message = f"the end of branch {branch.branch} is not published in gpuctl's table"
        yield replace(warn(CHECK, host, message, "prefer a long-term branch"), source=branch.source)
    elif f"{today:%Y-%m}" > branch.end:
        message = f"branch {branch.branch} ({branch.kind}) ended in {branch.end}"
        yield replace(warn(CHECK, host, message, "move to a branch that NVIDIA still repairs"), source=branch.source)


def below(driver: DriverVersion | int, least: DriverVersion) -> bool | None:
    """True if a driver is older than a minimum; None for a branch alone that has older and newer versions."""
    if isinstance(driver, DriverVersion):
        return driver < least
    return None if driver == least.branch else driver < least.branch


def _gpus(host: str, rows: Sequence[GpuModel], driver: DriverVersion | int, known: Knowledge) -> Iterator[Finding]:
    for row in dict.fromkeys(rows):
        architecture = next((one for one in known.architectures if one.name == row.architecture), None)
        least = row.least_driver or (architecture.least_driver if architecture else None)
        if least is None:
            yield unknown(CHECK, host, f"the least driver of {row.model} is not known")
            continue
        too_old = below(driver, least)
        if too_old:
            message = f"{row.model} needs driver {least} or later, not {driver}"
            yield replace(fail(CHECK, host, message, f"set driver: {least} or later"), source=row.source)
        elif too_old is None:
            message = f"{row.model} needs driver {least} or later; which of branch {driver} is not decided yet"
            yield unknown(CHECK, host, message, "set the driver's full version")
        elif row.least_driver is None and not (architecture and architecture.exact):
            yield unknown(
                CHECK, host, f"the least driver of {row.model} is not published; {least} is not enough for all"
            )


def _last(host: str, rows: Sequence[GpuModel], branch: Branch, known: Knowledge) -> Iterator[Finding]:
    """Architectures that a later branch has dropped."""
    last = {name: row for row in known.branches for name in row.last_for}
    for row in dict.fromkeys(rows):
        final = last.get(row.architecture)
        if final is not None and branch.branch > final.branch:
            message = f"branch {final.branch} is the last for {row.architecture} ({row.model}), not {branch.branch}"
            yield replace(fail(CHECK, host, message, f"set driver: {final.branch}"), source=final.source)


def _cuda(host: str, request: StackRequest, branch: Branch, known: Knowledge) -> Iterator[Finding]:
    """The jobs' CUDA: refused below the major's minimum, WARN below the toolkit's own driver."""
    if request.cuda is None or request.driver is None:
        return
    major = int(request.cuda.partition(".")[0])
    minimum = next((row for row in known.majors if row.major == major), None)
    toolkit = next((row for row in known.cuda if row.cuda == request.cuda), None)
    if minimum is None or toolkit is None:
        yield unknown(CHECK, host, f"the least driver of CUDA {request.cuda} is not known")
    elif branch.branch < minimum.branch:
        message = f"CUDA {major} needs branch {minimum.branch} or later, not {branch.branch}"
        yield replace(fail(CHECK, host, message, f"set driver: {toolkit.driver} or later"), source=minimum.source)
    elif below(request.driver, toolkit.driver):
        message = f"CUDA {request.cuda} has all its features from driver {toolkit.driver}, not with {request.driver}"
        hint = f"set driver: {toolkit.driver} or later, or accept minor-version compatibility"
        yield replace(warn(CHECK, host, message, hint), source=toolkit.source)
