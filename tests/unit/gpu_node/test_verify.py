"""Verification of a host's stack: what must hold before it takes jobs again."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from typing import Any

import pytest

from gpuctl.domain.findings import Verdict, overall
from gpuctl.gpu_node import verify
from gpuctl.gpu_node.knowledge import knowledge
from gpuctl.gpu_node.model import CdiSpec, HostGpuFacts, StackRequest
from gpuctl.gpu_node.plan import plan
from gpuctl.gpu_node.version import driver_version
from tests.rig.gpu_stack_machines import MACHINES, offered

KNOWN = knowledge()
DRIVER = "580.178.04"
REQUEST = StackRequest(driver_version(DRIVER))
BUSY = ("1 processes on GPUs: 77, python",)


def complete(machine: str, request: StackRequest = REQUEST, **more: Any) -> HostGpuFacts:
    """This machine with everything that the request decides installed and running."""
    offers = offered(request, KNOWN)
    facts = replace(MACHINES[machine], offers=offers, busy=BUSY)
    made = plan("n1", facts, request, KNOWN, date(2026, 11, 27))
    packages = dict(pair for part in made.components for pair in part.versions)
    modules = {"running_module": DRIVER, "installed_module": DRIVER, "running_open": True, "installed_open": True}
    return replace(facts, **{"packages": packages, **modules, "smi_gpus": len(facts.gpus or ()), **more})


def readings(facts: HostGpuFacts, *, fabric: str | None = "Completed", **more: Any) -> dict[str, Any]:
    """What a healthy host's tools print; nvidia-smi writes addresses with eight digits."""
    row = {
        "fabric_state": fabric,
        "fabric_status": fabric and "Success",
        "model": "H100",
        "ecc": "Enabled",
        "ecc_pending": "Enabled",
    }
    gpus = [{**row, "address": f"0000{gpu.address.upper()}"} for gpu in facts.gpus or ()]
    gpu = {"driver": DRIVER, "gpus": gpus, "fabric_manager": DRIVER, "fabric_manager_runs": True, "unread": {}}
    return {"gpu": {**gpu, **more}, "rdma": {"efa": {"domains": len(facts.efa_devices or ())}, "unread": {}}}


def judged(facts: HostGpuFacts, tools: dict[str, Any], request: StackRequest = REQUEST) -> dict[str, tuple[str, str]]:
    """Check -> verdict and message of those that are not OK."""
    made = plan("n1", facts, request, KNOWN, date(2026, 11, 27))
    findings = verify.judge(made, facts, tools)
    assert findings
    return {f.check: (str(f.verdict), f.message) for f in findings if f.verdict is not Verdict.OK}


@pytest.mark.parametrize("machine", ["T4", "L40S", "HGX H100", "HGX B200"])
def test_a_host_that_has_all_is_well_also_while_jobs_run(machine: str) -> None:
    facts = complete(machine)
    assert judged(facts, readings(facts)) == {}


@pytest.mark.parametrize(
    ("change", "check", "verdict", "text"),
    [
        ({"running_module": "570.86.15"}, "module", "FAIL", "running 570.86.15, installed 580.178.04"),
        ({"installed_module": ""}, "module", "FAIL", "installed none"),
        ({"running_module": ""}, "module", "FAIL", "no module is loaded"),
        ({"running_open": False}, "module", "FAIL", "the running one is proprietary, should be open"),
        ({"running_open": None, "unread": {"running_open": "gone"}}, "module", "UNKNOWN", "gone"),
        ({"running_module": None}, "module", "UNKNOWN", "could not be read"),
        ({"packages": {}}, "driver", "FAIL", "nothing is installed"),
        ({"packages": None}, "driver", "UNKNOWN", "could not be determined"),
        ({"interrupted": ("nvidia-dkms-580-open",)}, "interrupted", "FAIL", "dpkg was interrupted"),
        ({"gpus": None}, "gpus", "UNKNOWN", "could not be listed"),
    ],
)
def test_the_host_must_have_and_run_what_is_decided(
    change: dict[str, Any], check: str, verdict: str, text: str
) -> None:
    facts = complete("HGX H100")
    got = judged(replace(facts, **change), readings(facts))[check]
    assert got[0] == verdict
    assert text in got[1]


@pytest.mark.parametrize(
    ("change", "check", "verdict", "text"),
    [
        ({"driver": "570.86.15"}, "nvidia-smi", "FAIL", "it names driver 570.86.15, the module is 580.178.04"),
        ({"driver": None, "unread": {"driver": "mismatch"}}, "nvidia-smi", "UNKNOWN", "mismatch"),
        ({"gpus": None, "unread": {"gpus": "No devices were found"}}, "gpus", "UNKNOWN", "No devices were found"),
        ({"gpus": []}, "gpus", "FAIL", "lists 0 of 8 GPUs, not 0000:10:00.0"),
        ({"fabric_manager_runs": False}, "fabric", "FAIL", "fabric manager does not run"),
        ({"fabric_manager": "580.105.08"}, "fabric", "FAIL", "fabric manager is 580.105.08"),
        ({"fabric_manager": None}, "fabric", "UNKNOWN", "the version of fabric manager"),
    ],
)
def test_its_tools_must_show_it(change: dict[str, Any], check: str, verdict: str, text: str) -> None:
    facts = complete("HGX H100")
    got = judged(facts, readings(facts, **change))[check]
    assert got[0] == verdict
    assert text in got[1]


def test_a_gpu_that_the_driver_has_lost_is_named() -> None:
    facts = complete("HGX H100")
    tools = readings(facts)
    lost = tools["gpu"]["gpus"].pop(3)["address"]
    verdict, message = judged(facts, tools)["gpus"]
    assert (verdict, lost[4:].lower() in message, "7 of 8" in message) == ("FAIL", True, True)


def test_a_fabric_that_is_still_in_progress_fails() -> None:
    facts = complete("HGX H100")
    assert judged(facts, readings(facts, fabric="In Progress"))["fabric"] == (
        "FAIL",
        "GPUs have not joined: In Progress (Success)",
    )


def test_gpus_without_a_fabric_state_are_unknown_only_where_there_is_a_fabric() -> None:
    facts = complete("HGX H100")
    assert judged(facts, readings(facts, fabric=None))["fabric"][0] == "UNKNOWN"
    alone = complete("L40S")
    assert judged(alone, readings(alone, fabric=None)) == {}


def test_a_pending_ecc_mode_is_a_warning() -> None:
    facts = complete("L40S")
    tools = readings(facts)
    tools["gpu"]["gpus"][0]["ecc_pending"] = "Disabled"
    assert judged(facts, tools)["ecc"] == ("WARN", "another mode waits for a reset of 1 GPU")


@pytest.mark.parametrize(
    ("domains", "installed", "expected"),
    [
        (2, "1.48.0", {}),
        (1, "1.48.0", {"efa devices": ("FAIL", "libfabric offers 1 of 2")}),
        (2, "1.40.0", {"efa": ("FAIL", "1.40.0 is installed, should be 1.48.0")}),
        (2, "", {"efa": ("FAIL", "nothing is installed, should be 1.48.0")}),
    ],
)
def test_efa_counts_by_its_recorded_version_and_by_libfabric(
    domains: int, installed: str, expected: dict[str, tuple[str, str]]
) -> None:
    request = replace(REQUEST, efa="1.48.0")
    facts = complete(
        "L40S", request, efa_devices=("0000:90:00.0", "0000:91:00.0"), efa_installed=installed, efa_kind="full"
    )
    tools = readings(facts)
    tools["rdma"]["efa"]["domains"] = domains
    assert judged(facts, tools, request) == expected


def test_efa_that_libfabric_cannot_list_is_unknown() -> None:
    request = replace(REQUEST, efa="1.48.0")
    facts = complete("L40S", request, efa_devices=("0000:90:00.0",), efa_installed="1.48.0", efa_kind="full")
    tools = {**readings(facts), "rdma": {"efa": None, "unread": {"efa domains": "fi_info: not on this host"}}}
    assert judged(facts, tools, request)["efa devices"] == (
        "UNKNOWN",
        "libfabric does not list them: fi_info: not on this host",
    )


def test_a_host_without_gpus_is_no_gpu_host() -> None:
    facts = replace(complete("L40S"), gpus=())
    made = plan("n1", facts, REQUEST, KNOWN, date(2026, 11, 27))
    assert overall(verify.judge(made, facts, readings(facts))) is Verdict.FAIL


TOOLKIT = replace(REQUEST, toolkit="1.20.0")
SPEC = CdiSpec("/run/cdi/nvidia.yaml", (DRIVER,), tuple(range(8)), ())


@pytest.mark.parametrize(
    ("cdi", "verdict", "text"),
    [
        ((), "FAIL", "there is no CDI specification of its GPUs"),
        (None, "UNKNOWN", "its specifications could not be read"),
        ((replace(SPEC, drivers=("570.86.15",)),), "FAIL", "is of driver 570.86.15, running is 580.178.04"),
        ((replace(SPEC, drivers=()),), "UNKNOWN", "names no driver"),
        ((replace(SPEC, gpus=(0, 1)),), "FAIL", "offers 2 of 8 GPUs"),
        ((replace(SPEC, missing=("/usr/lib/libcuda.so.1.2",)),), "FAIL", "names files that are not there"),
        ((replace(SPEC, path="/etc/cdi/nvidia.yaml", drivers=("1.2",)), SPEC), "WARN", "/etc/cdi/nvidia.yaml is of"),
    ],
)
def test_containers_get_all_gpus_and_the_running_drivers_libraries_by_cdi(
    cdi: tuple[CdiSpec, ...] | None, verdict: str, text: str
) -> None:
    facts = complete("HGX H100", TOOLKIT, cdi=cdi)
    found = judged(facts, readings(facts), TOOLKIT)
    assert found.keys() == {"cdi"}
    assert found["cdi"][0] == verdict
    assert text in found["cdi"][1]


def test_a_whole_cdi_specification_is_well_and_old_toolkits_need_none() -> None:
    facts = complete("HGX H100", TOOLKIT, cdi=(SPEC,))
    assert judged(facts, readings(facts), TOOLKIT) == {}
    old = replace(REQUEST, toolkit="1.17.8")
    facts = complete("HGX H100", old)
    assert judged(facts, readings(facts), old)["cdi"][0] == "WARN"
