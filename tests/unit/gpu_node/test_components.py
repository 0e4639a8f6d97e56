"""Container toolkit, DCGM and EFA in the plan, beside the driver and without one."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from typing import Any

import pytest

from gpuctl.domain.findings import Verdict
from gpuctl.gpu_node.knowledge import knowledge
from gpuctl.gpu_node.model import Component, HostGpuFacts, StackPlan, StackRequest
from gpuctl.gpu_node.plan import plan
from gpuctl.gpu_node.version import driver_version
from tests.rig.gpu_stack_machines import MACHINES, offered

KNOWN = knowledge()
REQUEST = StackRequest(driver_version("580.178.04"), toolkit="1.20.0", dcgm="4.6.0-1", efa="1.48.0")
TOOLKIT = dict.fromkeys(KNOWN.toolkit[0].packages, "1.20.0-1")


def decide(facts: HostGpuFacts, request: StackRequest = REQUEST) -> StackPlan:
    offers = offered(request, KNOWN) | dict(facts.offers or {}) if facts.offers is not None else None
    return plan("node-1", replace(facts, offers=offers), request, KNOWN, date(2026, 11, 27))


def part(made: StackPlan, name: str) -> Component:
    return next(component for component in made.components if component.name == name)


def test_toolkit_and_dcgm_come_in_exact_versions() -> None:
    made = decide(MACHINES["L40S"])
    assert part(made, "container toolkit").packages == tuple(f"{name}=1.20.0-1" for name in TOOLKIT)
    assert part(made, "dcgm").packages == (
        "datacenter-gpu-manager-4-core=1:4.6.0-1",
        "datacenter-gpu-manager-4-cuda13=1:4.6.0-1",
    )
    assert set(part(made, "dcgm").packages) < set(made.packages)


def test_dcgm_is_that_of_the_drivers_cuda_and_the_old_one_goes() -> None:
    old = replace(MACHINES["L40S"], packages={"datacenter-gpu-manager": "1:3.3.9"})
    made = decide(old, replace(REQUEST, driver=driver_version("535.309.01")))
    assert part(made, "dcgm").packages[1] == "datacenter-gpu-manager-4-cuda12=1:4.6.0-1"
    assert part(made, "dcgm").removes == ("datacenter-gpu-manager",)


def test_without_a_driver_of_the_site_dcgm_follows_the_installed_one() -> None:
    request = replace(REQUEST, driver=None)
    made = decide(replace(MACHINES["L40S"], installed_module="535.309.01"), request)
    assert "datacenter-gpu-manager-4-cuda12=1:4.6.0-1" in made.packages
    bare = decide(MACHINES["L40S"], request)
    assert [finding.verdict for finding in bare.findings if finding.check == "dcgm"] == [Verdict.UNKNOWN]


def test_an_installed_toolkit_stays_and_a_part_behind_moves_all() -> None:
    stays = decide(replace(MACHINES["L40S"], packages=TOOLKIT))
    assert (part(stays, "container toolkit").changes, part(stays, "container toolkit").packages) == (False, ())
    moves = decide(replace(MACHINES["L40S"], packages={**TOOLKIT, "libnvidia-container1": "1.19.0-1"}))
    assert part(moves, "container toolkit").changes
    assert part(moves, "container toolkit").installed == "1.20.0-1, 1.19.0-1"


def test_a_version_that_no_repository_has_is_refused_with_what_it_has() -> None:
    made = decide(replace(MACHINES["L40S"], offers={"libnvidia-container1": ("1.17.8-1",)}))
    [finding] = [finding for finding in made.findings if finding.check == "repository"]
    assert (finding.verdict, finding.message) == (
        Verdict.FAIL,
        "no container toolkit 1.20.0-1 in the host's repositories: libnvidia-container1 has 1.17.8-1",
    )


EFA: dict[str, Any] = {"efa_devices": ("0000:30:00.0",), "efa_installed": "1.48.0", "efa_kind": "full"}


@pytest.mark.parametrize(
    ("facts", "changes", "verdict", "message"),
    [
        ({}, False, None, ""),
        ({"efa_installed": "", "efa_kind": None}, True, None, ""),
        ({"efa_installed": "1.47.0"}, True, None, ""),
        ({"efa_installed": "1.50.0"}, True, Verdict.WARN, "1.50.0 is installed, and is removed before 1.48.0"),
        ({"efa_kind": "minimal"}, True, None, ""),
        ({"efa_wrong": ("efa 2 of its record is not installed",)}, True, Verdict.WARN, "1.48.0, and not whole: efa 2"),
        ({"efa_installed": "", "efa_kind": None, "efa_wrong": ("efa without",)}, True, Verdict.WARN, "no recorded"),
        (
            {"efa_installed": None, "unread": {"efa_installed": "it names no version"}},
            None,
            Verdict.UNKNOWN,
            "names no",
        ),
        ({"efa_wrong": None, "unread": {"efa_wrong": "modinfo: broken"}}, None, Verdict.UNKNOWN, "modinfo: broken"),
        ({"efa_devices": None}, None, Verdict.UNKNOWN, "the PCI bus could not be read"),
        ({"efa_devices": ()}, None, Verdict.FAIL, "the PCI bus has no EFA device"),
        ({"distribution": "debian13"}, None, Verdict.UNKNOWN, "no row says that EFA's installer supports debian13"),
    ],
)
def test_efa_is_judged_by_its_record_and_by_what_the_packages_say(
    facts: dict[str, Any], changes: bool | None, verdict: Verdict | None, message: str
) -> None:
    made = decide(replace(MACHINES["L40S"], **{**EFA, **facts}), replace(REQUEST, driver=None, toolkit=None, dcgm=None))
    assert part(made, "efa").changes is changes
    found = [finding for finding in made.findings if finding.check == "efa"]
    assert [finding.verdict for finding in found] == ([verdict] if verdict else [])
    assert all(message in finding.message for finding in found)
    assert made.refused == (verdict in {Verdict.FAIL, Verdict.UNKNOWN})


def test_efa_needs_an_enrolled_key_where_secure_boot_is_on() -> None:
    request = replace(REQUEST, driver=None, toolkit=None, dcgm=None)
    locked = replace(MACHINES["L40S"], **{**EFA, "efa_installed": "1.47.0"}, secure_boot=True, mok_enrolled=False)
    assert decide(locked, request).refused
    assert not decide(replace(locked, efa_installed="1.48.0"), request).refused


def test_unread_packages_make_everything_unknown() -> None:
    facts = replace(MACHINES["L40S"], packages=None, unread={"packages": "dpkg-query: broken"})
    made = decide(facts, replace(REQUEST, efa=None))
    assert [component.changes for component in made.components[:3]] == [None, None, None]
    assert made.state == "unknown"
    assert "dpkg-query: broken" in next(finding.message for finding in made.findings if finding.check == "holds")
