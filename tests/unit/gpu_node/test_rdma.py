"""GPUDirect RDMA in the plan: DMA-BUF, nvidia_peermem or a refusal, and GDRCopy."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from typing import Any

import pytest

from gpuctl.domain.findings import Verdict
from gpuctl.gpu_node import desired, rollout, verify
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
BOTH = "dmabuf, efa_nv_peermem"


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
    assert rdma(made) == {
        "shown": "dmabuf",
        "files": {desired.RDMA_MODULES: None},
        "built": {},
        "modules": [],
        "start": True,
    }


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ({"kernel": OLD_KERNEL}, "Linux 5.4.0-200-generic, open module"),
        ({"running_open": False, "installed_open": False}, "proprietary module"),
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
        (
            {"peer_modules": ("nvidia_peermem",), "peer_symbols": False},
            "nvidia_peermem",
            Verdict.FAIL,
            "is loaded, but",
        ),
        (
            {"peer_modules": ("nvidia_peermem",), "peer_symbols": None},
            "nvidia_peermem",
            Verdict.UNKNOWN,
            "can register",
        ),
        ({"rdma_drivers": ("irdma",)}, "dmabuf", Verdict.UNKNOWN, "from which kernel on irdma has it"),
        ({"rdma_drivers": ("efa",)}, "nvidia_peermem", Verdict.FAIL, "does not serve efa"),
        ({"running_module": None, "unread": {"running_module": "x"}}, "auto", Verdict.UNKNOWN, "not be read: x"),
        ({"rdma_drivers": ()}, "auto", Verdict.FAIL, "no RDMA device"),
        ({"rdma_drivers": None, "unread": {"rdma_drivers": "x"}}, "auto", Verdict.UNKNOWN, "could not be read: x"),
        ({"installed_module": ""}, "auto", Verdict.FAIL, "driver is not installed"),
        ({"kernel": OLD_KERNEL}, "dmabuf", Verdict.FAIL, "DMA-BUF is not possible: Linux 5.4"),
        ({"rdma_drivers": ("irdma",)}, "auto", Verdict.UNKNOWN, "from which kernel on irdma has it"),
        ({"installed_open": None}, "auto", Verdict.UNKNOWN, "the flavour of the running or of the installed"),
        ({"kernel": "custom"}, "auto", Verdict.UNKNOWN, "whether DMA-BUF works is not known: kernel or flavour"),
        ({"running_module": "", "running_open": None}, "auto", Verdict.UNKNOWN, "unreadable: no module is loaded"),
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
    assert (
        part(decide(replace(host, peer_modules=("gdrdrv",), gdrdrv_module="2.5"), None, "2.5.2-1"), "gdrcopy").changes
        is False
    )
    assert decide(replace(host, peer_modules=None), None, "2.5.2-1").refused


@pytest.mark.parametrize(
    ("facts", "check"),
    [({"headers": False}, "headers"), ({"secure_boot": True, "mok_enrolled": False}, "secure boot")],
)
def test_gdrcopy_is_refused_where_its_module_cannot_be_built_or_loaded(facts: dict[str, Any], check: str) -> None:
    made = decide(replace(HOST, **facts), None, "2.5.2-1")
    assert [one.verdict for one in made.findings if one.check == check] == [Verdict.FAIL]


def test_modules_for_another_driver_are_set_up_and_loaded_by_the_reboot() -> None:
    request = StackRequest(driver_version("580.178.04"), peer_memory="nvidia_peermem", gdrcopy="2.5.2-1")
    for facts in ({"running_module": "570.1"}, {"running_open": None}):
        host = replace(HOST, offers=offered(request, KNOWN), **facts)
        made = plan("node-1", host, request, KNOWN, date(2026, 11, 27))
        messages = [one.message for one in made.findings if one.check == "peer memory"]
        assert "gdrcopy and peer memory are set up now, and loaded by the reboot" in messages[0]
        assert not made.refused, made.findings
        value = rdma(made, host)
        assert (value["start"], value["modules"]) == (False, ["ib_core", "nvidia_peermem", "gdrdrv"])
        assert value["versions"]["gdrdrv-dkms"] == "2.5.2-1"


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ({"running_module": "570.1"}, "the running module is 570.1, installed is 580.178.04"),
        ({"running_open": False}, "the running module is proprietary, the installed one is not"),
        ({"foreign_modules": ("nouveau",)}, "nouveau is loaded"),
    ],
)
def test_beside_another_driver_than_the_installed_one_nothing_changes(facts: dict[str, Any], why: str) -> None:
    host = replace(HOST, **facts)
    made = decide(host, "auto", "2.5.2-1")
    warnings = [one for one in made.findings if one.check in {"peer memory", "gdrcopy"}]
    assert [one.verdict for one in warnings] == [Verdict.WARN, Verdict.WARN]
    assert why in warnings[0].message
    assert (made.refused, made.packages, rdma(made, host)) == (False, (), {})
    assert verdicts(made, host) == {"peer memory": Verdict.FAIL, "gdrcopy": Verdict.FAIL}


def verdicts(made: StackPlan, facts: HostGpuFacts) -> dict[str, Verdict]:
    rows = verify.judge(made, facts, {})
    return {one.check: one.verdict for one in rows if one.check in {"peer memory", "gdrcopy"}}


EFA_HOST = replace(HOST, rdma_drivers=("efa",), efa_devices=("0000:00:06.0",))
NO_DMABUF: dict[str, Any] = {"kernel": OLD_KERNEL, "efa_module": "2.13.0g"}


@pytest.mark.parametrize(
    ("facts", "path"),
    [
        ({"kernel": "5.16.0-1"}, "dmabuf"),
        ({"kernel": "5.15.0-1", "efa_module": "1.16.0"}, "dmabuf"),
        ({"kernel": "5.15.0-1", "efa_module": "2.13.0g"}, "dmabuf"),
        ({**NO_DMABUF, "peer_modules": ("efa_nv_peermem",)}, "efa_nv_peermem"),
        ({"efa_module": None, "peer_modules": ("efa_nv_peermem",)}, "efa_nv_peermem"),
        ({"rdma_drivers": ("efa", "mlx5_core"), "kernel": "5.15.0-1", "peer_modules": ("efa_nv_peermem",)}, BOTH),
    ],
)
def test_efa_has_dmabuf_or_its_peer_memory_module(facts: dict[str, Any], path: str) -> None:
    host = replace(EFA_HOST, **facts)
    made = decide(host)
    assert (part(made).desired, part(made).changes, made.refused) == (path, False, False), made.findings
    assert rdma(made, host)["modules"] == []


@pytest.mark.parametrize(
    ("facts", "verdict", "message"),
    [
        ({"kernel": OLD_KERNEL}, Verdict.FAIL, "efa_nv_peermem is not loaded, which efa needs (no DMA-BUF: Linux 5.4"),
        ({"kernel": "5.15.0-1"}, Verdict.FAIL, "efa has it from Linux 5.16 on"),
        ({"kernel": "5.15.0-1", "efa_module": "1.15.2"}, Verdict.FAIL, "efa has it from 1.16 on, 1.15.2 is loaded"),
        ({**NO_DMABUF, "peer_modules": ("nvidia_peermem",)}, Verdict.FAIL, "efa_nv_peermem is not loaded"),
        ({**NO_DMABUF, "peer_modules": None}, Verdict.UNKNOWN, "could not be read"),
        ({"efa_module": None, "unread": {"efa_module": "x"}}, Verdict.UNKNOWN, "loaded efa could not be read: x"),
    ],
)
def test_nvidia_peermem_does_not_count_for_efa(facts: dict[str, Any], verdict: Verdict, message: str) -> None:
    made = decide(replace(EFA_HOST, **facts))
    [finding] = [one for one in made.findings if one.check == "peer memory"]
    assert (finding.verdict, made.refused) == (verdict, True)
    assert message in finding.message


def test_each_driver_of_a_mixed_host_has_its_path() -> None:
    host = replace(EFA_HOST, rdma_drivers=("efa", "mlx5_core"), **NO_DMABUF)
    served = decide(replace(host, peer_modules=("efa_nv_peermem", "nvidia_peermem")))
    assert (part(served).desired, part(served).changes) == ("efa_nv_peermem, nvidia_peermem", False)
    half = decide(replace(host, peer_modules=("efa_nv_peermem",)))
    assert (part(half).changes, rdma(half, host)["modules"]) == (True, ["ib_core", "nvidia_peermem"])
    assert decide(replace(host, peer_modules=("nvidia_peermem",))).refused


@pytest.mark.parametrize("request_of", [{"efa": "1.48.0"}, {"after_efa": True}])
def test_peer_memory_waits_for_the_driver_of_efa(request_of: dict[str, Any]) -> None:
    request = StackRequest(None, peer_memory="auto", **request_of)
    host = replace(EFA_HOST, rdma_drivers=())
    made = plan("node-1", host, request, KNOWN, date(2026, 11, 27))
    [finding] = [one for one in made.findings if one.check == "peer memory"]
    assert (finding.verdict, made.refused, rdma(made, host)) == (Verdict.WARN, False, {}), made.findings
    assert "waits for EFA's driver" in finding.message
    assert verdicts(made, host) == {"peer memory": Verdict.FAIL}
    assert plan("node-1", replace(host, efa_devices=()), request, KNOWN, date(2026, 11, 27)).refused


def test_the_installer_that_brings_efa_nv_peermem_is_not_refused() -> None:
    request = StackRequest(None, peer_memory="auto", efa="1.48.0")
    made = plan("node-1", replace(EFA_HOST, **NO_DMABUF), request, KNOWN, date(2026, 11, 27))
    assert not made.refused, made.findings
    assert [one.verdict for one in made.findings if one.check == "peer memory"] == [Verdict.WARN]


def test_a_driver_without_a_row_is_a_warning_where_dmabuf_is_asked_for() -> None:
    made = decide(replace(HOST, rdma_drivers=("irdma", "mlx5_core")), "dmabuf")
    [finding] = [one for one in made.findings if one.check == "peer memory"]
    assert (finding.verdict, part(made).desired, made.refused) == (Verdict.WARN, "dmabuf", False)
    assert decide(replace(HOST, rdma_drivers=("irdma", "mlx5_core")), "auto").refused


def test_gdrcopy_of_another_version_is_not_in_use() -> None:
    packages = {**(HOST.packages or {}), "gdrdrv-dkms": "2.6-1", "libgdrapi": "2.6-1"}
    host = replace(HOST, packages=packages, peer_modules=("gdrdrv",), gdrdrv_module="2.5", gdrdrv_device=True)
    made = decide(host, None, "2.6-1")
    assert (part(made, "gdrcopy").changes, part(made, "gdrcopy").installed) == (True, "2.6-1, gdrdrv 2.5 loaded")
    assert [one.verdict for one in made.findings if one.check == "gdrcopy"] == [Verdict.WARN]
    assert rdma(made, host)["built"] == {"gdrdrv": "2.6"}
    right = replace(host, gdrdrv_module="2.6")
    assert verdicts(decide(right, None, "2.6-1"), right) == {"gdrcopy": Verdict.OK}
    for device, verdict in ((False, Verdict.FAIL), (None, Verdict.UNKNOWN)):
        host = replace(right, gdrdrv_device=device)
        assert verdicts(decide(host, None, "2.6-1"), host) == {"gdrcopy": verdict}
    assert decide(replace(right, gdrdrv_module=None), None, "2.6-1").refused


def test_dmabuf_is_verified_by_the_running_module() -> None:
    request = StackRequest(driver_version("580.178.04"), "open", peer_memory="dmabuf")
    for running, verdict in ((True, Verdict.OK), (False, Verdict.FAIL), (None, Verdict.UNKNOWN)):
        host = replace(HOST, running_open=running, offers=offered(request, KNOWN))
        made = plan("node-1", host, request, KNOWN, date(2026, 11, 27))
        assert verdicts(made, host) == {"peer memory": verdict}


def storage(facts: HostGpuFacts, gdrcopy: str | None = None) -> StackPlan:
    request = StackRequest(None, gdrcopy=gdrcopy, gds="2.26.6-1")
    return plan("node-1", replace(facts, offers=offered(request, KNOWN)), request, KNOWN, date(2026, 11, 27))


def test_gds_is_nvidia_fs_beside_the_open_module_and_counts_once_it_is_loaded() -> None:
    made = storage(HOST, "2.5.2-1")
    assert not made.refused, made.findings
    value = rdma(made)
    assert value["versions"] == {"gdrdrv-dkms": "2.5.2-1", "libgdrapi": "2.5.2-1", "nvidia-fs-dkms": "2.26.6-1"}
    assert value["holds"] == ["gdrdrv-dkms", "libgdrapi", "nvidia-fs-dkms"]
    assert (value["built"], value["modules"]) == ({"gdrdrv": "2.5", "nvidia_fs": "2.26.6"}, ["gdrdrv", "nvidia_fs"])
    assert value["shown"] == "GDRCopy 2.5.2-1, GDS 2.26.6-1"
    installed = replace(HOST, packages={**(HOST.packages or {}), "nvidia-fs-dkms": "2.26.6-1"})
    assert part(storage(installed), "gds").installed == "2.26.6-1, nvidia_fs not loaded"
    assert part(storage(replace(installed, nvidia_fs_module="2.24.2")), "gds").changes is True
    assert part(storage(replace(installed, nvidia_fs_module="2.26.6")), "gds").changes is False


@pytest.mark.parametrize(
    ("facts", "verdict", "message"),
    [
        ({"installed_open": False, "running_open": False}, Verdict.FAIL, "needs NVIDIA's open module"),
        ({"installed_open": None, "unread": {"installed_open": "x"}}, Verdict.UNKNOWN, "could not be read: x"),
        ({"secure_boot": True, "mok_enrolled": True}, Verdict.FAIL, "not supported with Secure Boot"),
        ({"secure_boot": None}, Verdict.UNKNOWN, "whether Secure Boot is on could not be read"),
        ({"installed_module": ""}, Verdict.FAIL, "driver is not installed"),
    ],
)
def test_gds_is_refused_where_it_cannot_work(facts: dict[str, Any], verdict: Verdict, message: str) -> None:
    made = storage(replace(HOST, **{"running_module": "", **facts}))
    rows = [one for one in made.findings if one.check == "gds"]
    assert made.refused
    assert any(one.verdict is verdict and message in one.message for one in rows), made.findings


@pytest.mark.parametrize(
    ("lacks", "unread", "reason"),
    [
        ("gdscheck is not installed", {}, "gdscheck is not installed"),
        (None, {"gdscheck_lacks": "x"}, "gdscheck could not be looked up: x"),
    ],
)
def test_gds_without_gdscheck_is_warned_of_and_stops_a_roll_out_before_it_drains(
    lacks: str | None, unread: dict[str, str], reason: str
) -> None:
    facts = replace(HOST, gdscheck_lacks=lacks, unread=unread)
    made = storage(facts)
    assert any(one.verdict is Verdict.WARN and reason in one.message for one in made.findings if one.check == "gds")
    steps = rollout.RolloutRequest(drain="slurm", reboot=True)
    assert reason in rollout.hindrance(made, facts, steps, local=False)
    assert not rollout.hindrance(storage(HOST), HOST, steps, local=False)
    assert not rollout.hindrance(decide(facts, None, "2.5.2-1"), facts, steps, local=False)


def test_dependencies_of_gdrcopy_belong_to_its_part() -> None:
    made = replace(decide(HOST, None, "2.5.2-1"), installs={"dkms": "3.0", "gdrdrv-dkms": "2.5.2-1"})
    value = rdma(made)
    assert value["versions"] == {"dkms": "3.0", "gdrdrv-dkms": "2.5.2-1", "libgdrapi": "2.5.2-1"}
    assert value["named"] == value["holds"] == ["gdrdrv-dkms", "libgdrapi"]
