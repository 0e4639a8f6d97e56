"""Plans as knobs of the engine: what each part of the stack consists of on a host."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from typing import Any

from gpuctl.gpu_node import desired
from gpuctl.gpu_node.knowledge import knowledge
from gpuctl.gpu_node.model import HostGpuFacts, StackPlan, StackRequest
from gpuctl.gpu_node.plan import plan
from gpuctl.gpu_node.version import driver_version
from tests.rig.gpu_stack_machines import MACHINES, offered

KNOWN = knowledge()
VERSION = driver_version("580.178.04")
assert VERSION


def planned(facts: HostGpuFacts, **more: Any) -> tuple[StackPlan, HostGpuFacts]:
    request = StackRequest(VERSION, **more)
    facts = replace(facts, offers=offered(request, KNOWN))
    made = plan("n1", facts, request, KNOWN, date(2026, 11, 27))
    installs = dict(pair for part in made.components for pair in part.versions)
    return replace(made, installs={**installs, "dkms": "3.0"}, removes={}), facts


def knobs(facts: HostGpuFacts, parts: tuple[str, ...] = desired.PARTS, **more: Any) -> dict[str, dict[str, Any]]:
    made, facts = planned(facts, **more)
    return {knob["name"].partition(".")[2]: knob["value"] for knob in desired.knobs(made, facts, KNOWN, parts)}


def test_an_hgx_board_has_its_fabric_packages_in_the_drivers_set_and_runs_fabric_manager() -> None:
    values = knobs(MACHINES["HGX H100"])
    driver = values["driver"]
    assert {"nvidia-dkms-580-open", "nvidia-fabricmanager-580", "libnvidia-nscq-580", "dkms"} <= driver[
        "versions"
    ].keys()
    assert "dkms" not in driver["named"]
    assert {"nvidia-fabricmanager-580", "linux-image-6.8.0-1021-aws"} <= set(driver["holds"])
    assert "Pin: version 580.178.04*" in driver["files"][desired.PIN]
    assert values["fabric"]["units"] == ["nvidia-fabricmanager.service"]
    assert values["fabric"]["start"] is True
    assert (values["toolkit"], values["dcgm"]) == ({}, {})


def test_a_host_with_dnf_has_no_pin_and_its_kernel_is_held_by_a_pattern() -> None:
    facts = replace(MACHINES["T4"], distribution="rhel9", kernel="5.14.0-427.el9.x86_64")
    made, facts = planned(facts)
    headers = ("kernel-devel", "5.14.0-427.el9")
    made = replace(
        made, packages=(*made.packages, "-".join(headers)), installs={**(made.installs or {}), headers[0]: headers[1]}
    )
    [driver] = [knob["value"] for knob in desired.knobs(made, facts, KNOWN, ("driver",)) if knob["value"]]
    assert set(driver["files"]) == {desired.NOUVEAU}
    assert set(driver["named"]) == {
        *("nvidia-driver-cuda", "kmod-nvidia-open-dkms", "nvidia-persistenced", "nvidia-modprobe", "kernel-devel")
    }
    assert "kernel*" in driver["holds"]


def test_undo_names_removed_packages_that_it_cannot_restore_and_those_that_were_not_looked_up() -> None:
    removes = {"nvidia-dkms-570": "570.1-1", "libnvidia-gl-570": "570.1-1", "cuda-12-9": "12.9.1-1"}
    made, facts = planned(replace(MACHINES["T4"], packages={**removes, "nvidia-modprobe": "570.1-1"}))
    offers = {**(facts.offers or {}), "nvidia-dkms-570": ("570.1-1",), "libnvidia-gl-570": ()}
    knob = desired.knobs(replace(made, removes=removes), replace(facts, offers=offers), KNOWN, ("driver",))[0]["value"]
    assert (knob["earlier"], knob["unasked"]) == (["nvidia-modprobe", "libnvidia-gl-570"], ["cuda-12-9"])


def test_a_host_without_a_fabric_gets_none() -> None:
    assert knobs(MACHINES["L40S"])["fabric"] == {}


def test_b200_loads_ib_umad_at_boot() -> None:
    fabric = knobs(MACHINES["HGX B200"])["fabric"]
    assert fabric["files"][desired.MODULES].splitlines()[1:] == ["mlx5_core", "ib_umad"]
    assert fabric["units"] == ["nvidia-fabricmanager.service"]


def test_a_tray_of_a_rack_runs_imex_with_its_list() -> None:
    facts = replace(MACHINES["GB200 tray"], architecture="aarch64")
    fabric = knobs(facts, imex_nodes=("10.0.0.1", "10.0.0.2"))["fabric"]
    assert fabric["units"] == ["nvidia-imex.service"]
    assert fabric["files"] == {desired.IMEX_NODES: "10.0.0.1\n10.0.0.2\n"}


def test_services_wait_for_the_reboot_that_another_running_driver_needs() -> None:
    facts = replace(
        MACHINES["HGX H100"],
        running_module="570.86.15",
        running_open=True,
        installed_module="570.86.15",
        installed_open=True,
        smi_gpus=8,
        packages={"nvidia-dkms-570-open": "570.86.15-1"},
    )
    assert knobs(facts)["fabric"]["start"] is False


def test_each_component_has_its_own_packages() -> None:
    values = knobs(MACHINES["L40S"], toolkit="1.20.0", dcgm="4.6.0-1")
    assert set(values["toolkit"]["versions"].values()) == {"1.20.0-1"}
    assert values["toolkit"]["runtimes"] is True
    assert set(values["dcgm"]["versions"]) == {"datacenter-gpu-manager-4-core", "datacenter-gpu-manager-4-cuda13"}
    assert values["dcgm"]["units"] == ["nvidia-dcgm.service"]
    assert not set(values["driver"]["versions"]) & {*values["toolkit"]["versions"], *values["dcgm"]["versions"]}


def test_efa_has_its_archives_address_and_the_keys_that_may_sign_them() -> None:
    facts = replace(MACHINES["L40S"], efa_devices=("0000:30:00.0",))
    aws = {
        "version": "1.48.0",
        "minimal": False,
        "uri": "https://efa-installer.amazonaws.com",
        "fingerprints": ["4E9091BCBB97A96B26B15E59A05480B1DD2D3CCC"],
    }
    assert knobs(facts, efa="1.48.0")["efa"] == {"shown": "1.48.0 full", "efa": aws}
    site: dict[str, Any] = {"efa_kind": "minimal", "efa_source": "file:/srv/efa", "efa_key": "A" * 40}
    values = knobs(facts, efa="1.48.0", **site)["efa"]
    assert values["shown"] == "1.48.0 minimal"
    assert values["efa"] == {**aws, "minimal": True, "uri": "file:/srv/efa", "fingerprints": ["A" * 40]}
    assert knobs(facts)["efa"] == {}


def test_an_older_generation_of_dcgm_is_removed_by_dcgm_alone() -> None:
    facts = replace(MACHINES["L40S"], packages={"datacenter-gpu-manager": "1:3.3.9"})
    made, facts = planned(facts, dcgm="4.6.0-1")
    made = replace(made, removes={"datacenter-gpu-manager": "1:3.3.9"})
    values = {knob["name"]: knob["value"] for knob in desired.knobs(made, facts, KNOWN)}
    assert values["gpu_stack.dcgm"]["removes"] == ["datacenter-gpu-manager"]
    assert values["gpu_stack.driver"]["removes"] == []


def test_a_refused_plan_changes_no_part_and_says_why() -> None:
    facts = replace(MACHINES["L40S"], busy=("1 processes on GPUs: 77, python",))
    values = knobs(facts)
    assert set(map(str, values.values())) == {"{'refused': 'busy: 1 processes on GPUs: 77, python'}"}


def test_parts_that_a_role_does_not_name_stay() -> None:
    values = knobs(MACHINES["HGX H100"], ("fabric",))
    assert values["fabric"]["units"]
    assert values["driver"] == {}


def test_packages_that_the_site_leaves_out_are_neither_installed_nor_held() -> None:
    driver = knobs(MACHINES["L40S"], without=("nvidia-modprobe",))["driver"]
    assert "nvidia-modprobe" not in {*driver["versions"], *driver["holds"]}
