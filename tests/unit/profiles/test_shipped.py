"""The shipped profiles are complete: every row has its reason, source, exceptions, and a way to read it."""

from __future__ import annotations

import pytest
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.kinds import KINDS
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.model import Knob
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.overlays import select
from ansible_collections.gpuctl.fleet.plugins.plugin_utils import profiles
from ansible_collections.gpuctl.fleet.plugins.plugin_utils.profiles.lookup import SHIPPED

from tests.rig.profile_files import machine

NAMES = ("minimal", "training", "inference", "latency", "isolated")


def chosen(name: str, **facts: object) -> dict[str, Knob]:
    knobs, _ = select(profiles.compiled(profiles.load(name, [])), machine(**facts))
    return {knob.name: knob for knob in knobs}


def rows(profile: profiles.Profile) -> list[profiles.Row]:
    return [*profile.rows.values(), *(row for overlay in profile.overlays for row in overlay.rows.values())]


def test_these_profiles_are_shipped() -> None:
    assert {file.name for file in profiles.names([])} == set(NAMES)
    assert all(file.path.parent == SHIPPED for file in profiles.names([]))


@pytest.mark.parametrize("name", NAMES)
def test_every_row_has_all_fields(name: str) -> None:
    for row in rows(profiles.load(name, [])):
        assert all((row.value, row.written, row.why, row.source, row.not_for, row.read_back)), row


@pytest.mark.parametrize("name", NAMES)
def test_every_profile_and_overlay_has_a_purpose(name: str) -> None:
    profile = profiles.load(name, [])
    assert profile.about
    assert all(overlay.why for overlay in profile.overlays)


@pytest.mark.parametrize("name", NAMES)
def test_every_normal_value_is_accepted_again(name: str) -> None:
    for row in rows(profiles.load(name, [])):
        kind, _, key = row.name.partition(".")
        value_type = KINDS[kind].type_of(key)
        assert row.type or value_type.check(row.value) == row.value, row


def test_profiles_build_on_each_other() -> None:
    assert {name: profiles.load(name, []).extends for name in NAMES} == {
        "minimal": (),
        "training": ("minimal",),
        "inference": ("minimal",),
        "latency": ("inference", "minimal"),
        "isolated": ("latency", "inference", "minimal"),
    }


def test_training_sets_what_a_training_host_needs() -> None:
    values = {name: knob.value for name, knob in chosen("training").items()}
    assert len(values) >= 40
    assert values["sysctl.vm.swappiness"] == "0"
    assert values["sysctl.vm.dirty_bytes"] == str(32 * 2**30)
    assert values["thp.enabled"] == "always"
    assert values["sysctl.net.ipv4.conf.all.rp_filter"] == "2"
    assert values["cmdline.iommu"] == "pt"
    assert values["sysctl.net.ipv4.conf.all.arp_ignore"] == "1"
    assert "sysctl.vm.nr_hugepages" not in values


def test_huge_pages_for_efa_are_reserved_only_for_pages_of_2_mib() -> None:
    p5 = {"machine": "virtual", "vendor": "Amazon EC2", "nics": ("efa", "ethernet")}
    assert chosen("training", **p5)["sysctl.vm.nr_hugepages"].value == "5128"
    grace = {**p5, "arch": "aarch64", "gpus": ("NVIDIA GB200",)}
    assert "sysctl.vm.nr_hugepages" not in chosen("training", **grace)
    assert chosen("training", **grace)["cmdline.init_on_alloc"].value == "0"


def test_a_virtual_machine_gets_no_knobs_of_the_hypervisor() -> None:
    virtual = chosen("training", machine="virtual")
    assert not {"cpu.governor", "cpu.boost", "irq.affinity", "cmdline.iommu"} & virtual.keys()
    ec2 = chosen("training", machine="virtual", vendor="Amazon EC2")
    assert ec2["irq.affinity"].value == "node"
    assert "cpu.governor" not in ec2


def test_a_host_without_gpus_gets_no_boot_arguments_and_no_huge_pages() -> None:
    for name in NAMES:
        assert not {"cmdline.iommu", "sysctl.vm.nr_hugepages"} & chosen(name, gpus=(), nics=("efa",)).keys()


def test_isolated_cores_get_no_interrupts_and_stay_balanced() -> None:
    values = {name: knob.value for name, knob in chosen("isolated").items()}
    assert (values["cmdline.nohz_full"], values["cmdline.irqaffinity"]) == ("isolated", "housekeeping")
    assert "domain" not in values["cmdline.isolcpus"]
    assert values["irq.affinity"] == "node"


def test_latency_goes_further_than_inference() -> None:
    inference, latency = chosen("inference"), chosen("latency")
    assert inference["thp.enabled"].value == latency["thp.enabled"].value == "never"
    assert int(latency["cpu.idle_latency_us"].value) < int(inference["cpu.idle_latency_us"].value)
    assert {"sysctl.net.core.busy_poll", "sysctl.net.core.busy_read"} <= latency.keys() - inference.keys()


def test_minimal_needs_no_reboot_and_disturbs_no_job() -> None:
    kinds = {name.partition(".")[0] for name in chosen("minimal")}
    assert kinds == {"sysctl", "limits", "program"}


@pytest.mark.parametrize(
    ("gpu", "large"),
    [
        ("NVIDIA A100-SXM4-80GB", True),
        ("NVIDIA A100 80GB PCIe", True),
        ("NVIDIA H100 80GB HBM3", True),
        ("NVIDIA H200", True),
        ("NVIDIA H20-3e", True),
        ("NVIDIA B200", True),
        ("NVIDIA GH200 480GB", True),
        ("NVIDIA GB300", True),
        ("NVIDIA RTX A1000", False),
        ("Tesla V100-SXM2-32GB", False),
        ("NVIDIA GeForce RTX 4090", False),
        ("NVIDIA L40S", False),
    ],
)
def test_more_memory_is_kept_free_on_whole_machines_with_data_centre_gpus(gpu: str, large: bool) -> None:
    for name in ("training", "inference"):
        kept = int(chosen(name, gpus=(gpu,) * 8)["sysctl.vm.min_free_kbytes"].value)
        assert kept == (1048576 if large else 524288)
        assert chosen(name, gpus=(gpu,), memory="251GiB")["sysctl.vm.min_free_kbytes"].value == "524288"


@pytest.mark.parametrize("memory", ["30GiB", "unknown"])
def test_a_small_host_and_one_of_unknown_size_keep_the_kernels_own_sizes(memory: str) -> None:
    sizes = ("sysctl.vm.min_free_kbytes", "sysctl.vm.dirty_bytes", "sysctl.vm.dirty_background_bytes")
    for name in ("training", "inference"):
        knobs = chosen(name, memory=memory, nics=("efa",))
        assert not {*sizes, "sysctl.vm.nr_hugepages"} & knobs.keys()
    assert chosen("training", memory="60GiB", gpus=())["sysctl.vm.dirty_bytes"].value == str(8 * 2**30)
