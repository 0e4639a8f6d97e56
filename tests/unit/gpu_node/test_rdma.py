"""GPUDirect RDMA in the plan: DMA-BUF, nvidia_peermem or a refusal, and GDRCopy."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from typing import Any

import pytest

from gpuctl.domain.findings import Verdict
from gpuctl.gpu_node import desired
from gpuctl.gpu_node.knowledge import knowledge
from gpuctl.gpu_node.model import Component, HostGpuFacts, StackPlan, StackRequest
from gpuctl.gpu_node.plan import plan
from gpuctl.gpu_node.version import driver_version
from tests.rig.gpu_stack_machines import MACHINES, offered

KNOWN = knowledge()
HOST = replace(
    MACHINES["HGX H100"],
    rdma_drivers=("mlx5_core",),
    peer_symbols=True,
    smi_gpus=8,
    packages={"nvidia-dkms-580-open": "580.178.04-1"},
    running_module="580.178.04",
    installed_module="580.178.04",
    running_open=True,
    installed_open=True,
)
OLD_KERNEL = "5.4.0-200-generic"


def decide(facts: HostGpuFacts, peer_memory: str | None = "auto", gdrcopy: str | None = None) -> StackPlan:
    request = StackRequest(None, peer_memory=peer_memory, gdrcopy=gdrcopy)
    return plan("node-1", replace(facts, offers=offered(request, KNOWN)), request, KNOWN, date(2026, 11, 27))


def part(made: StackPlan, name: str = "peer memory") -> Component:
    return next(component for component in made.components if component.name == name)


def rdma(made: StackPlan, facts: HostGpuFacts = HOST) -> dict[str, Any]:
    knobs = desired.knobs(made, facts, KNOWN, ("rdma",))
    return dict(next(knob["value"] for knob in knobs if knob["name"] == "gpu_stack.rdma"))


def test_dmabuf_needs_nothing_and_takes_an_earlier_file_away() -> None:
    made = decide(HOST)
    assert (part(made).desired, part(made).changes, made.refused) == ("dmabuf", False, False), made.findings
    assert rdma(made) == {"shown": "dmabuf", "files": {desired.RDMA_MODULES: None}, "built": {}, "modules": []}


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ({"kernel": OLD_KERNEL}, "Linux 5.4.0-200-generic, open module"),
        ({"installed_open": False}, "proprietary module"),
        ({"rdma_drivers": ("efa", "mlx5_core"), "kernel": "5.15.0-1"}, "efa has it from Linux 5.16 on"),
    ],
)
def test_without_dmabuf_nvidia_peermem_is_loaded_after_ib_core(facts: dict[str, Any], why: str) -> None:
    host = replace(HOST, **facts)
    made = decide(host)
    assert (part(made).desired, part(made).installed, part(made).changes) == ("nvidia_peermem", "", True)
    assert why in part(made).why
    assert not made.refused, made.findings
    value = rdma(made, host)
    assert value["files"][desired.RDMA_MODULES].splitlines()[1:] == ["ib_core", "nvidia_peermem"]
    assert part(decide(replace(host, peer_modules=("nvidia_peermem",)))).changes is False


@pytest.mark.parametrize(
    ("facts", "peer_memory", "verdict", "message"),
    [
        ({"rdma_drivers": ()}, "auto", Verdict.FAIL, "no RDMA device"),
        ({"rdma_drivers": None, "unread": {"rdma_drivers": "x"}}, "auto", Verdict.UNKNOWN, "could not be read: x"),
        ({"installed_module": ""}, "auto", Verdict.FAIL, "driver is not installed"),
        ({"kernel": OLD_KERNEL}, "dmabuf", Verdict.FAIL, "DMA-BUF is not possible: Linux 5.4"),
        ({"rdma_drivers": ("irdma",)}, "auto", Verdict.UNKNOWN, "from which kernel on irdma has it"),
        ({"installed_open": None}, "auto", Verdict.UNKNOWN, "whether DMA-BUF works is not known"),
        ({"peer_symbols": False}, "nvidia_peermem", Verdict.FAIL, "no peer memory interface"),
        ({"peer_symbols": False, "kernel": OLD_KERNEL}, "auto", Verdict.FAIL, "(no DMA-BUF: Linux 5.4"),
        ({"peer_symbols": None}, "nvidia_peermem", Verdict.UNKNOWN, "ib_core is not loaded"),
        ({"peer_modules": ("nv_peer_mem",)}, "nvidia_peermem", Verdict.FAIL, "nv_peer_mem is on the host"),
        ({"packages": {"nvidia-peer-memory-dkms": "1"}}, "nvidia_peermem", Verdict.FAIL, "nvidia-peer-memory-dkms is"),
        ({"peer_modules": None}, "nvidia_peermem", Verdict.UNKNOWN, "could not be read"),
    ],
)
def test_what_cannot_work_is_refused_with_its_reason(
    facts: dict[str, Any], peer_memory: str, verdict: Verdict, message: str
) -> None:
    made = decide(replace(HOST, **facts), peer_memory)
    [finding] = [one for one in made.findings if one.check == "peer memory"]
    assert (finding.verdict, made.refused) == (verdict, True)
    assert message in finding.message
    assert finding.hint
    assert set(rdma(made)) == {"refused"}


def test_gdrcopy_comes_in_one_version_with_its_module() -> None:
    made = decide(HOST, None, "2.5.2-1")
    assert part(made, "gdrcopy").packages == ("gdrdrv-dkms=2.5.2-1", "libgdrapi=2.5.2-1")
    value = rdma(made)
    assert value["holds"] == ["gdrdrv-dkms", "libgdrapi"]
    assert (value["built"], value["modules"]) == ({"gdrdrv": "2.5"}, ["gdrdrv"])


def test_an_installed_gdrcopy_counts_only_with_its_module_loaded() -> None:
    packages = {**(HOST.packages or {}), "gdrdrv-dkms": "2.5.2-1", "libgdrapi": "2.5.2-1"}
    host = replace(HOST, packages=packages)
    idle = decide(host, None, "2.5.2-1")
    assert (part(idle, "gdrcopy").installed, part(idle, "gdrcopy").changes) == ("2.5.2-1, gdrdrv not loaded", True)
    assert part(decide(replace(host, peer_modules=("gdrdrv",)), None, "2.5.2-1"), "gdrcopy").changes is False
    assert decide(replace(host, peer_modules=None), None, "2.5.2-1").refused


@pytest.mark.parametrize(
    ("facts", "check"),
    [({"headers": False}, "headers"), ({"secure_boot": True, "mok_enrolled": False}, "secure boot")],
)
def test_gdrcopy_is_refused_where_its_module_cannot_be_built_or_loaded(facts: dict[str, Any], check: str) -> None:
    made = decide(replace(HOST, **facts), None, "2.5.2-1")
    assert [one.verdict for one in made.findings if one.check == check] == [Verdict.FAIL]


def test_modules_wait_for_the_reboot_into_another_driver() -> None:
    request = StackRequest(driver_version("580.178.04"), peer_memory="auto", gdrcopy="2.5.2-1")
    facts = replace(HOST, running_module="570.1", offers=offered(request, KNOWN))
    made = plan("node-1", facts, request, KNOWN, date(2026, 11, 27))
    assert "gdrcopy and peer memory wait for the reboot" in next(
        one.message for one in made.findings if one.check == "peer memory"
    )
    assert not made.refused, made.findings
    assert rdma(made, facts) == {}
