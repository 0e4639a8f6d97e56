"""Decisions for described machines: module flavour, fabric services, packages."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from typing import Any

import pytest

from gpuctl.domain.findings import Verdict
from gpuctl.gpu_node.knowledge import knowledge
from gpuctl.gpu_node.model import HostGpuFacts, PciGpu, RepositoryKey, StackPlan, StackRequest
from gpuctl.gpu_node.plan import alike, plan
from gpuctl.gpu_node.version import driver_version
from tests.rig.gpu_stack_machines import BARE, INFERRED, MACHINES, gpus, machine, offered

KNOWN = knowledge()
APT_KEY = "EB69 3B30 35CD 5710 E231  E123 A4B4 6996 3BF8 63CC"
TODAY = date(2026, 11, 27)


def request(driver: str = "580.178.04", **others: Any) -> StackRequest:
    version = driver_version(driver) or int(driver)
    return StackRequest(version, **others)


def decide(facts: HostGpuFacts, desired: StackRequest | None = None) -> StackPlan:
    """The plan of a host whose repositories have everything, unless its facts say what they have."""
    desired = desired or request()
    if facts.offers == {}:
        facts = replace(facts, offers=offered(desired, KNOWN, facts.kernel))
    return plan("node-1", facts, desired, KNOWN, TODAY)


def verdicts(made: StackPlan, check: str) -> list[Verdict]:
    return [finding.verdict for finding in made.findings if finding.check == check]


def message(made: StackPlan, check: str) -> str:
    return next(finding.message for finding in made.findings if finding.check == check)


# machine -> flavour, fabric, refused with driver 580.178.04
EXPECTED = {
    "T4": ("open", "none", False),
    "A10G": ("open", "none", False),
    "A10": ("open", "none", False),
    "L4": ("open", "none", False),
    "L4 fraction": ("grid", "none", True),
    "L40S": ("open", "none", False),
    "V100 SXM": ("proprietary", "none", False),
    "DGX-2": ("proprietary", "fabric_manager", False),
    "A30": ("open", "none", False),
    "A100 PCIe": ("open", "none", False),
    "HGX A100": ("open", "fabric_manager", False),
    "HGX A100 with 4 GPUs": ("open", "none", False),
    "H100 PCIe": ("open", "none", False),
    "HGX H100": ("open", "fabric_manager", False),
    "one H100 in a VM": ("open", "none", False),
    "H100 id 2339": ("open", "none", False),
    "one H200 in a VM": ("open", "none", False),
    "HGX H200": ("open", "fabric_manager", False),
    "HGX B200": ("open", "nvlsm", False),
    "one B200 in a VM": ("open", "none", False),
    "HGX B300": ("open", "nvlsm", False),
    "GB200 tray": ("open", "imex", False),
    "GB300 tray": ("open", "imex", False),
    "GH200": ("open", "none", False),
    "RTX PRO 6000": ("open", "none", False),
    "none": ("none", "none", False),
}


@pytest.mark.parametrize("name", [pytest.param(n, id=f"{n}, inferred" if n in INFERRED else n) for n in MACHINES])
def test_a_machine_gets_its_module_and_fabric_services(name: str) -> None:
    made = decide(MACHINES[name])
    assert (made.flavour.value, made.fabric.value, made.refused) == EXPECTED[name], made.findings
    assert made.flavour.why
    assert made.fabric.why


def test_every_decision_has_a_machine() -> None:
    assert EXPECTED.keys() == MACHINES.keys()
    assert len(MACHINES) >= 20


@pytest.mark.parametrize(
    ("distribution", "driver", "packages"),
    [
        ("ubuntu22.04", "580.178.04", ("libnvidia-compute-580=580.178.04-1", "nvidia-dkms-580-open=580.178.04-1")),
        ("ubuntu24.04", "595.91.07", ("libnvidia-compute=595.91.07-1", "nvidia-dkms-open=595.91.07-1")),
        ("debian12", "580.178.04", ("libnvidia-compute-580=580.178.04-1", "nvidia-dkms-580-open=580.178.04-1")),
        ("debian13", "595.91.07", ("libnvidia-compute=595.91.07-1", "nvidia-dkms-open=595.91.07-1")),
        ("rhel8", "580.178.04", ("nvidia-driver-cuda-580.178.04-1", "kmod-nvidia-open-dkms-580.178.04-1")),
        ("rhel9", "580.178.04", ("nvidia-driver-cuda-580.178.04-1", "kmod-nvidia-open-dkms-580.178.04-1")),
        ("rhel10", "595.91.07", ("nvidia-driver-cuda-595.91.07-1", "kmod-nvidia-open-dkms-595.91.07-1")),
        ("amzn2023", "580.178.04", ("nvidia-driver-cuda-580.178.04-1", "kmod-nvidia-open-dkms-580.178.04-1")),
    ],
)
def test_packages_have_the_names_of_the_distribution(distribution: str, driver: str, packages: tuple[str, ...]) -> None:
    made = decide(replace(MACHINES["HGX H100"], distribution=distribution), request(driver))
    assert made.packages[:2] == packages
    assert any("fabricmanager" in name for name in made.packages)
    assert not made.refused


def test_rhel_9_has_a_module_stream_and_rhel_10_none() -> None:
    assert decide(replace(MACHINES["T4"], distribution="rhel9")).module_stream == "nvidia-driver:580-open"
    assert decide(replace(MACHINES["V100 SXM"], distribution="rhel9")).module_stream == "nvidia-driver:580-dkms"
    assert decide(replace(MACHINES["T4"], distribution="rhel10")).module_stream == ""


def test_fabric_manager_has_dashes_before_580_on_rhel() -> None:
    made = decide(replace(MACHINES["HGX H100"], distribution="rhel9"), request("535.309.01"))
    assert "nvidia-fabric-manager-535.309.01-1" in made.packages


def test_hgx_b200_gets_nvlsm_with_a_version_of_its_own_and_ib_umad() -> None:
    made = decide(MACHINES["HGX B200"])
    own = {"nvlsm=2025.10.11-1", "infiniband-diags=2025.10.11-1"}
    assert {*own, "nvidia-fabricmanager-580=580.178.04-1"} <= set(made.packages)
    assert made.modules == ("mlx5_core", "ib_umad")


def test_a_gb200_tray_gets_imex_and_no_fabric_manager() -> None:
    made = decide(MACHINES["GB200 tray"])
    assert "nvidia-imex-580=580.178.04-1" in made.packages
    assert not any("fabricmanager" in name for name in (*made.packages, *made.services))


def test_the_set_and_its_kernel_are_held() -> None:
    made = decide(MACHINES["T4"])
    assert made.holds == (
        "libnvidia-compute-580",
        "nvidia-dkms-580-open",
        "nvidia-modprobe",
        "linux-image-6.8.0-1021-aws",
        "linux-headers-6.8.0-1021-aws",
    )
    assert made.pin == "nvidia-driver-pinning-580.178.04"


def test_a_branch_alone_is_its_newest_version_that_all_parts_have_and_is_then_pinned() -> None:
    offers = dict.fromkeys(offered(request(), KNOWN), ("595.91.07-1", "580.178.04-1", "580.105.08-1"))
    made = decide(replace(MACHINES["T4"], offers=offers), request("580"))
    assert made.driver == "580.178.04"
    assert made.packages[0] == "libnvidia-compute-580=580.178.04-1"
    assert made.pin == "nvidia-driver-pinning-580.178.04"
    behind = decide(replace(MACHINES["T4"], offers={**offers, "nvidia-modprobe": ("580.105.08-1",)}), request("580"))
    assert behind.driver == "580.105.08"


@pytest.mark.parametrize(
    ("missing", "verdict", "reason"),
    [
        (None, Verdict.UNKNOWN, "could not be read"),
        (("libnvidia-compute-580", "nvidia-dkms-580-open", "nvidia-modprobe"), Verdict.UNKNOWN, "no repository"),
        (("nvidia-modprobe",), Verdict.FAIL, "no repository of the host has nvidia-modprobe"),
    ],
)
def test_what_the_repositories_lack_is_named(missing: tuple[str, ...] | None, verdict: Verdict, reason: str) -> None:
    whole = offered(request(), KNOWN)
    offers = None if missing is None else {**whole, **dict.fromkeys(missing, ())}
    made = decide(replace(MACHINES["T4"], offers=offers))
    assert verdicts(made, "repository") == [verdict]
    assert reason in message(made, "repository")
    assert made.refused


def test_parts_in_different_versions_are_refused_before_anything_is_resolved() -> None:
    offers = {**offered(request(), KNOWN), "nvidia-modprobe": ("580.105.08-1",)}
    made = decide(replace(MACHINES["T4"], offers=offers))
    assert verdicts(made, "one version") == [Verdict.FAIL]
    assert message(made, "one version") == (
        "no driver 580.178.04 that all parts are offered in: libnvidia-compute-580, nvidia-dkms-580-open 580.178.04; "
        "nvidia-modprobe 580.105.08"
    )


def test_facts_of_another_request_are_unknown() -> None:
    made = decide(replace(MACHINES["T4"], offers={"bash": ("5.2",)}))
    assert "were not looked up" in message(made, "repository")


def test_an_unknown_distribution_is_unknown() -> None:
    assert verdicts(decide(replace(MACHINES["T4"], distribution="sles15")), "packages") == [Verdict.UNKNOWN]
    assert verdicts(decide(replace(MACHINES["T4"], distribution=None)), "packages") == [Verdict.UNKNOWN]


@pytest.mark.parametrize(
    ("name", "flavour", "reason"),
    [
        ("HGX B200", "proprietary", "B200 works with the open module only"),
        ("GH200", "proprietary", "GH200 96 works with the open module only"),
        ("V100 SXM", "open", "V100 works with the proprietary module only"),
    ],
)
def test_a_module_that_the_gpu_does_not_have_is_refused(name: str, flavour: str, reason: str) -> None:
    made = decide(MACHINES[name], request(flavour=flavour))
    assert verdicts(made, "flavour") == [Verdict.FAIL]
    assert reason in message(made, "flavour")


def test_a_fraction_of_an_l4_needs_grid_whatever_the_site_sets() -> None:
    made = decide(MACHINES["L4 fraction"], request(flavour="open"))
    assert verdicts(made, "flavour") == [Verdict.FAIL]
    assert made.packages == ()


def test_an_l4_whose_subsystem_is_unread_may_be_a_fraction() -> None:
    assert verdicts(decide(machine(1, "27b8", None)), "gpus") == [Verdict.UNKNOWN]


def test_a_proprietary_module_after_610_is_unknown() -> None:
    assert verdicts(decide(MACHINES["T4"], request("620.10.01", flavour="proprietary")), "flavour") == [Verdict.UNKNOWN]


@pytest.mark.parametrize(
    ("name", "driver", "verdict", "reason"),
    [
        ("HGX B300", "580.65.06", Verdict.FAIL, "B300 needs driver 580.82.07"),
        ("HGX B200", "535.309.01", Verdict.FAIL, "B200 needs driver 570.133.20"),
        ("V100 SXM", "595.91.07", Verdict.FAIL, "branch 580 is the last for Volta"),
        ("T4", "535.309.01", Verdict.WARN, "branch 535 (LTS) ended in 2026-06"),
        ("T4", "610.57.04", Verdict.WARN, "branch 610 (new feature) ended in 2026-08"),
        ("T4", "575.57.08", Verdict.UNKNOWN, "branch 575 is not known"),
        ("T4", "580.178.04", Verdict.OK, "driver 580.178.04"),
    ],
)
def test_the_driver_is_judged_by_gpu_and_branch(name: str, driver: str, verdict: Verdict, reason: str) -> None:
    made = decide(MACHINES[name], request(driver))
    assert (verdict, True) in [
        (finding.verdict, reason in finding.message) for finding in made.findings if finding.check == "driver version"
    ]


def test_the_least_driver_of_a_gb10_is_not_published() -> None:
    assert verdicts(decide(machine(1, "2e12", "21ec")), "driver version") == [Verdict.UNKNOWN]


def test_the_last_month_of_a_branch_still_has_support() -> None:
    at_end = plan("node-1", MACHINES["T4"], request("535.309.01"), KNOWN, date(2026, 6, 30))
    assert verdicts(at_end, "driver version") == [Verdict.OK]


@pytest.mark.parametrize(
    ("driver", "cuda", "verdict"),
    [
        ("535.309.01", "13.0", Verdict.FAIL),
        ("535.309.01", "12.8", Verdict.WARN),
        ("580.178.04", "12.8", Verdict.OK),
        ("580.178.04", "13.2", Verdict.WARN),
        ("580.178.04", "14.0", Verdict.UNKNOWN),
    ],
)
def test_the_driver_is_judged_by_the_cuda_of_the_jobs(driver: str, cuda: str, verdict: Verdict) -> None:
    assert verdict in verdicts(decide(MACHINES["L40S"], request(driver, cuda=cuda)), "driver version")


def test_an_unreadable_bus_is_unknown_and_installs_nothing() -> None:
    made = decide(replace(BARE, gpus=None, nvswitches=None))
    assert (made.flavour.value, made.fabric.value, made.packages) == (None, None, ())
    assert made.refused


def test_an_unknown_gpu_id_is_unknown() -> None:
    assert "dead at" in message(decide(machine(1, "dead")), "gpus")


@pytest.mark.parametrize("name", ["HGX H100", "HGX B200"])
def test_a_full_board_without_switch_or_bridge_is_unknown(name: str) -> None:
    made = decide(replace(MACHINES[name], nvswitches=(), infiniband_vpd=()))
    assert verdicts(made, "fabric") == [Verdict.UNKNOWN]


def test_an_unread_vpd_is_unknown_beside_a_b200_and_no_matter_beside_a_t4() -> None:
    assert verdicts(decide(replace(MACHINES["HGX B200"], infiniband_vpd=None)), "fabric") == [Verdict.UNKNOWN]
    assert decide(replace(MACHINES["T4"], infiniband_vpd=None)).fabric.value == "none"


def test_a_mixed_host_is_refused() -> None:
    mixed = replace(BARE, gpus=(*gpus(1, "1eb8"), PciGpu("0000:81:00.0", "20f1", "10de", "145f")))
    assert message(decide(mixed), "mixed host") == "GPUs of several models: A100-40 PCIe, T4"


def test_gpus_that_need_different_modules_have_no_flavour() -> None:
    mixed = replace(BARE, gpus=(*gpus(1, "1db1"), PciGpu("0000:81:00.0", "2bb5", "10de", "204e")))
    assert verdicts(decide(mixed), "flavour") == [Verdict.UNKNOWN]


LOADED = {
    "running_module": "580.178.04",
    "running_open": True,
    "installed_module": "580.178.04",
    "installed_open": True,
}


def test_a_lost_gpu_is_refused() -> None:
    made = decide(replace(MACHINES["HGX H100"], **LOADED, smi_gpus=7))  # type: ignore[arg-type]
    assert message(made, "lost gpu") == "the PCI bus has 8 GPUs, nvidia-smi lists 7"


def test_a_silent_nvidia_smi_is_unknown() -> None:
    made = decide(replace(MACHINES["HGX H100"], **LOADED, smi_gpus=None))  # type: ignore[arg-type]
    assert verdicts(made, "lost gpu") == [Verdict.UNKNOWN]


@pytest.mark.parametrize(
    ("facts", "check", "verdict"),
    [
        ({"headers": None}, "headers", Verdict.UNKNOWN),
        ({"secure_boot": True, "mok_enrolled": False}, "secure boot", Verdict.FAIL),
        ({"secure_boot": True, "mok_enrolled": None}, "secure boot", Verdict.UNKNOWN),
        ({"secure_boot": True, "mok_enrolled": True}, "secure boot", Verdict.OK),
        ({"secure_boot": None}, "secure boot", Verdict.UNKNOWN),
        ({"busy": ("2 processes on GPUs",)}, "busy", Verdict.FAIL),
        ({"busy": None}, "busy", Verdict.UNKNOWN),
        ({"keys": (RepositoryKey("/usr/share/keyrings/cuda.gpg", "0" * 40),)}, "repository key", Verdict.FAIL),
        ({"keys": (RepositoryKey("cuda.gpg", APT_KEY),)}, "repository key", Verdict.OK),
        ({"keys": None}, "repository key", Verdict.UNKNOWN),
        ({"holds": None}, "holds", Verdict.UNKNOWN),
        ({"packages": None}, "holds", Verdict.UNKNOWN),
        (
            {"packages": {"nvidia-dkms-570-open": "570.86.15-1"}, "holds": ("nvidia-dkms-570-open",)},
            "holds",
            Verdict.WARN,
        ),
        (
            {
                "running_module": "570.86.15",
                "installed_module": "580.178.04",
                "smi_gpus": 1,
                "packages": {"nvidia-dkms-580-open": "580.178.04-1"},
            },
            "module",
            Verdict.WARN,
        ),
        ({"busy": ("GPU processes unknown: nvidia-smi: not on this host",)}, "busy", Verdict.UNKNOWN),
        ({"lists_age_days": 15}, "package lists", Verdict.WARN),
        ({"lists_age_days": None}, "package lists", Verdict.UNKNOWN),
        ({"repositories": None}, "repository key", Verdict.UNKNOWN),
        ({"installed_module": None}, "module", Verdict.UNKNOWN),
        ({"foreign_modules": None}, "foreign module", Verdict.UNKNOWN),
    ],
)
def test_the_host_is_judged(facts: dict[str, object], check: str, verdict: Verdict) -> None:
    made = decide(replace(MACHINES["T4"], **facts))  # type: ignore[arg-type]
    assert verdicts(made, check) == [verdict]
    assert made.refused == (verdict in {Verdict.FAIL, Verdict.UNKNOWN})
    assert all(finding.hint for finding in made.findings if finding.verdict is Verdict.FAIL)


def test_a_branch_whose_version_is_not_chosen_may_be_too_old_for_a_gpu() -> None:
    made = decide(replace(MACHINES["HGX B300"], offers=None), request("580"))
    assert "which of branch 580 is not decided yet" in message(made, "driver version")


def test_missing_headers_are_installed_if_a_repository_has_them_and_refused_otherwise() -> None:
    made = decide(replace(MACHINES["T4"], headers=False))
    assert verdicts(made, "headers") == [Verdict.OK]
    assert made.packages[0] == "linux-headers-6.8.0-1021-aws"
    offers = {**offered(request(), KNOWN), "linux-headers-6.8.0-1021-aws": ()}
    refused = decide(replace(MACHINES["T4"], headers=False, offers=offers))
    assert verdicts(refused, "headers") == [Verdict.FAIL]


def test_headers_of_dnf_are_those_of_the_running_release() -> None:
    kernel = "5.14.0-570.el9.x86_64"
    rhel = replace(MACHINES["T4"], distribution="rhel9", kernel=kernel, headers=False)
    newer, same = ("5.14.0-611.el9",), ("5.14.0-611.el9", "5.14.0-570.el9")
    assert verdicts(decide(replace(rhel, offers={**offered(request(), KNOWN), "kernel-devel": newer})), "headers") == [
        Verdict.FAIL
    ]
    made = decide(replace(rhel, offers={**offered(request(), KNOWN), "kernel-devel": same}))
    assert made.packages[0] == "kernel-devel-5.14.0-570.el9"


def test_debian_13_rejects_the_old_apt_key() -> None:
    old = (RepositoryKey("cuda.gpg", APT_KEY),)
    made = decide(replace(MACHINES["T4"], distribution="debian13", keys=old))
    assert verdicts(made, "repository key") == [Verdict.FAIL]


@pytest.mark.parametrize(
    ("facts", "reboot"),
    [
        ({}, False),
        ({"foreign_modules": ("nouveau",)}, True),
        ({**LOADED}, False),
        ({**LOADED, "running_module": "570.86.15"}, True),
        ({**LOADED, "running_open": False}, True),
        ({**LOADED, "running_open": None}, None),
        ({"running_module": None}, None),
    ],
)
def test_a_reboot_is_needed_where_the_running_module_differs(facts: dict[str, object], reboot: bool | None) -> None:
    made = decide(replace(MACHINES["T4"], smi_gpus=1, **facts))  # type: ignore[arg-type]
    assert made.reboot is reboot
    assert made.reboot_why


def test_a_site_without_driver_installs_nothing() -> None:
    made = decide(MACHINES["T4"], StackRequest(None))
    assert (made.packages, made.reboot, made.refused) == ((), False, False)


def test_hosts_alike_are_one_group() -> None:
    plans = [plan(name, MACHINES["T4"], request(), KNOWN, TODAY) for name in ("a", "b")]
    assert list(alike([*plans, decide(MACHINES["L4"])]).values()) == [["a", "b"], ["node-1"]]


INSTALLED = dict.fromkeys(("libnvidia-compute-580", "nvidia-dkms-580-open", "nvidia-modprobe"), "580.178.04-1")
CURRENT = replace(MACHINES["T4"], packages=INSTALLED, **LOADED, smi_gpus=1)  # type: ignore[arg-type]


def test_a_host_that_has_it_all_needs_nothing_even_at_work_and_without_repositories() -> None:
    at_work = replace(CURRENT, busy=("2 processes on GPUs",), headers=False, secure_boot=None, offers=None)
    made = decide(at_work)
    assert (made.state, made.packages, made.reboot) == ("up to date", (), False)


def test_a_host_with_one_part_behind_gets_the_whole_set() -> None:
    made = decide(replace(CURRENT, packages={**INSTALLED, "nvidia-modprobe": "580.105.08-1"}))
    assert made.state == "install"
    assert made.components[0].installed == "580.178.04, 580.105.08"
    assert len(made.packages) == 3


def test_a_driver_that_no_package_brought_is_refused() -> None:
    made = decide(replace(CURRENT, packages={"nvidia-container-toolkit": "1.20.0-1"}))
    assert verdicts(made, "driver origin") == [Verdict.FAIL]


def test_a_distribution_has_no_fabric_manager() -> None:
    hgx = replace(MACHINES["HGX H100"], distribution="debian12")
    made = decide(hgx, StackRequest(driver_version("535.309.01"), repository="distribution"))
    assert "no package of fabric_manager" in message(made, "packages")
