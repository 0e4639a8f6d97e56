"""Decide nccl-tests of a host: built for its GPUs from a pinned archive, or the site's folder, only checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from gpuctl.domain.findings import Finding, fail, unknown, warn
from gpuctl.gpu_node.case import Case
from gpuctl.gpu_node.model import Choice, Component, StackRequest
from gpuctl.gpu_node.rows import Knowledge

NAME = "nccl-tests"
BASE = "https://github.com/NVIDIA/nccl-tests/archive"
DRIVER = "the driver, which is not loaded yet"
EFA = "EFA's installer, which brings Open MPI"
LACKS = "what it lacks: "  # begins the event of tests that cannot be built, or used, as the host is
DOES_NOT_RUN = " does not run: "  # in the reason of gpuhost/nccl_tests.py
NO_MPI = "mpi.h is missing"  # begins the reason of gpuhost/nccl_tests.py
AGAIN = "then run gpuctl bootstrap gpu-node again"


def question(request: StackRequest) -> dict[str, str]:
    """The part of the request for the facts of a host; empty if the site does not set nccl_tests."""
    if request.nccl_tests is None:
        return {}
    return {"folder" if is_folder(request) else "version": request.nccl_tests}


def is_folder(request: StackRequest) -> bool:
    """True if the site has a folder with its own build."""
    return (request.nccl_tests or "").startswith("/")


def archive(request: StackRequest, known: Knowledge) -> dict[str, Any]:
    """`folder`, or `version`, `sha256` and `uri`, for the engine; `sha256` is "" if no row and no site has it."""
    asked = question(request)
    if "version" not in asked:
        return asked
    pinned = next((row.sha256 for row in known.nccl_tests if row.version == request.nccl_tests), "")
    uri = f"{request.nccl_tests_source or BASE}/v{request.nccl_tests}.tar.gz"
    return {**asked, "sha256": request.nccl_tests_sha256 or pinned, "uri": uri}


def decide(
    case: Case, reboot: Choice, efa: Component | None
) -> tuple[Component | None, list[Finding], tuple[tuple[str, str], ...]]:
    """The component, its findings, and the event that it waits for. `efa`: its component, None if it is not set."""
    facts, request = case.facts, case.request
    if request.nccl_tests is None:
        return None, [], ()
    component = Component(NAME, request.nccl_tests, facts.nccl_tests, why="the site's folder, only checked")
    if facts.nccl_tests is None or facts.nccl_tests_lacks is None:
        message = f"the installed tests could not be read{facts.why('nccl_tests', 'nccl_tests_lacks')}"
        return component, [unknown(NAME, case.host, message, "look at /opt/gpuctl/nccl-tests/build.json")], ()
    if is_folder(request):
        return _folder(case, reboot, efa, component)
    if not archive(request, case.known)["sha256"]:
        versions = ", ".join(row.version for row in case.known.nccl_tests)
        message = f"the SHA-256 of {request.nccl_tests} is not known; known are {versions}"
        return component, [fail(NAME, case.host, message, "set nccl_tests_sha256, or one of these versions")], ()
    return _built(case, reboot, efa)


def _folder(
    case: Case, reboot: Choice, efa: Component | None, component: Component
) -> tuple[Component, list[Finding], tuple[tuple[str, str], ...]]:
    """The site's test needs libraries of EFA's Open MPI and of the driver to run."""
    lacks = case.facts.nccl_tests_lacks or ()
    if not lacks:
        return replace(component, changes=False), [], ()
    event = _lacks(lacks, "repair the folder, set a version to have it built, or set nccl_tests: none")
    if all(DOES_NOT_RUN in reason for reason in lacks):
        event = EFA if efa is not None and efa.changes else event
        event = DRIVER if _waits_for_driver(case, reboot) else event
    return component, [_waits(case, event)], ((NAME, event),)


def _lacks(reasons: Sequence[str], way_out: str) -> str:
    return f"{LACKS}{'; '.join(reasons)} ({way_out})"


def _waits_for_driver(case: Case, reboot: Choice) -> bool:
    is_asked = case.request.driver is not None or case.request.after_driver
    return is_asked and (not case.facts.running_module or reboot.value != "no")


def _built(
    case: Case, reboot: Choice, efa: Component | None
) -> tuple[Component, list[Finding], tuple[tuple[str, str], ...]]:
    facts, request = case.facts, case.request
    version = request.nccl_tests or ""
    waiting = Component(NAME, version, facts.nccl_tests, why="built for the GPUs of the host", changes=True)
    if not facts.compute and _waits_for_driver(case, reboot):
        return waiting, [_waits(case, DRIVER)], ((NAME, DRIVER),)
    if not facts.compute:
        message = f"it is built for the GPUs of the host, which are unknown{facts.why('compute')}"
        return (
            Component(NAME, version, facts.nccl_tests),
            [unknown(NAME, case.host, message, "run nvidia-smi there")],
            (),
        )
    names = ",".join(f"sm_{value.replace('.', '')}" for value in facts.compute)
    if facts.nccl_tests == f"{version} {names} {archive(request, case.known)['sha256'][:12]}":
        return Component(NAME, version, facts.nccl_tests, why=f"built for {names}", changes=False), [], ()
    lacks = facts.nccl_tests_lacks or ()
    if efa is not None and efa.changes and lacks and all(reason.startswith(NO_MPI) for reason in lacks):
        return waiting, [_waits(case, EFA)], ((NAME, EFA),)
    made = Component(NAME, version, facts.nccl_tests, why=f"built for {names}", changes=True)
    if lacks:
        # The other parts of the stack do not need it: an upgrade of the driver goes on.
        event = _lacks(lacks, "or set nccl_tests: none")
        return made, [_waits(case, event)], ((NAME, event),)
    return made, [], ()


def _waits(case: Case, event: str) -> Finding:
    return warn(NAME, case.host, f"it waits for {event}", AGAIN)
