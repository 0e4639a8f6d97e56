"""Facts of the GPU stack: read from a host's files and programs, None with a reason where that fails."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.efa.state import RECORD
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.facts import stack
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.host import Host
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.resources import deb
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.resources.lock import LIST

from gpuctl.gpu_node.facts import host_gpu_facts
from gpuctl.gpu_node.knowledge import knowledge
from gpuctl.gpu_node.model import HostGpuFacts, PciGpu
from gpuctl.gpu_node.plan import package_set
from gpuctl.gpu_node.site import read_variables
from tests.rig.trees.host import put

KERNEL = "6.8.0-9001-test"
KEY = "/usr/share/keyrings/cuda-archive-keyring.gpg"
VERSION = """NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.990.04  Release Build  (builder@example)
GCC version:  gcc version 13.3.0
"""


def program(root: Path, name: str, script: str) -> None:
    put(root, f"/usr/bin/{name}", f"#!/bin/sh\n{script}\n")
    (root / "usr/bin" / name).chmod(0o755)


def device(root: Path, address: str, ids: str, of_class: str, subsystem: str = "") -> None:
    base = f"{stack.PCI}/{address}"
    vendor, _, model = ids.partition(":")
    files = {"vendor": vendor, "device": model, "class": of_class}
    if subsystem:
        files |= {"subsystem_vendor": "0x10de", "subsystem_device": subsystem}
    for name, text in files.items():
        put(root, f"{base}/{name}", f"{text}\n")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """An invented B200 host of Ubuntu with a driver, one GPU of two lost, and a pinned key."""
    device(tmp_path, "0000:00:1f.0", "0x8086:0x7a0c", "0x060100")
    device(tmp_path, "0000:10:00.0", "0x10de:0x2901", "0x030200", "0x1999")
    device(tmp_path, "0000:11:00.0", "0x10de:0x2901", "0x030200", "0x1999")
    device(tmp_path, "0000:12:00.0", "0x10de:0x22a3", "0x068000")
    device(tmp_path, "0000:20:00.0", "0x15b3:0x1021", "0x020700")
    device(tmp_path, "0000:21:00.0", "0x15b3:0x101e", "0x020700")
    device(tmp_path, "0000:30:00.0", "0x1d0f:0xefa2", "0x020000")
    (tmp_path / "sys/bus/pci/devices/0000:20:00.0/vpd").write_bytes(b"\x82\x05\x00Board\x90\xff SW_MNG \x00\xfe")
    put(tmp_path, "/proc/sys/kernel/osrelease", f"{KERNEL}\n")
    put(tmp_path, f"/lib/modules/{KERNEL}/build/Makefile", "")
    put(tmp_path, "/sys/firmware/efi/runtime", "")
    put(tmp_path, stack.SECURE_BOOT, "\x06\x00\x00\x00\x01")
    put(tmp_path, stack.MOK_KEYS[0], "der")
    put(tmp_path, "/etc/os-release", 'ID=ubuntu\nVERSION_ID="24.04"\n')
    put(tmp_path, "/etc/apt/preferences.d/nvidia-driver-pin", "Package: *nvidia*\nPin: version 580*\n")
    put(tmp_path, "/etc/apt/preferences.d/other", "Package: bash\n")
    put(tmp_path, "/usr/share/keyrings/cuda-archive-keyring.gpg", "key")
    put(tmp_path, "/usr/share/keyrings/ubuntu.gpg", "key")
    put(tmp_path, "/sys/module/nvidia/version", "580.990.04\n")
    put(tmp_path, "/sys/module/nouveau/refcnt", "0\n")
    put(tmp_path, "/sys/module/ib_core/refcnt", "1\n")
    put(tmp_path, "/sys/module/efa/version", "2.13.0g\n")
    put(tmp_path, "/sys/module/gdrdrv/version", "2.5\n")
    put(tmp_path, "/dev/gdrdrv", "")
    put(tmp_path, "/sys/module/nvidia_peermem/refcnt", "0\n")
    put(tmp_path, "/sys/class/infiniband/mlx5_0/device/uevent", "DRIVER=mlx5_core\nPCI_CLASS=20700\n")
    put(tmp_path, "/proc/kallsyms", "0 T ib_register_peer_memory_client\t[ib_core]\n")
    program(tmp_path, "grep", 'exec /usr/bin/grep "$@"')
    put(tmp_path, stack.MODULE, VERSION)
    program(tmp_path, "mokutil", 'echo "$2 is already enrolled"; exit 1')
    program(tmp_path, "nvidia-smi", 'echo "GPU 0: NVIDIA B200 (UUID: GPU-1)"; echo "  MIG 1g.23gb Device 0: (UUID: M)"')
    program(tmp_path, "modinfo", 'case $4 in version) echo 580.990.04;; license) echo "Dual MIT/GPL";; esac')
    states = {
        "nvidia-dkms-580-open": ("580.990.04-1", "hold", "installed"),
        "bash": ("5.2", "install", "installed"),
        "nvidia-imex": ("580.1.1-1", "deinstall", "config-files"),
        "efa-config": ("1.18", "install", "installed"),
    }
    rows = [f"{name}\tamd64\t{version}\t{want}\tok\t{status}\n" for name, (version, want, status) in states.items()]
    short = [f"{name}\t{version}\t{status}\n" for name, (version, _, status) in states.items()]
    put(tmp_path, "/run/states", "".join(rows))
    put(tmp_path, "/run/versions", "".join(short))
    kind = 'case "$3" in *Want*) file=states;; *) file=versions;; esac'
    program(tmp_path, "dpkg-query", f"{kind}; exec /bin/cat {tmp_path}/run/$file")
    program(tmp_path, "apt-get", "exit 1")
    program(
        tmp_path, "apt-cache", "printf 'nvlsm | 2.0-1 | http://m/ Packages\\nnvlsm | 1.0-1 | http://m/ Packages\\n'"
    )
    put(tmp_path, "/var/lib/apt/lists/m_InRelease", "")
    put(
        tmp_path, "/etc/apt/sources.list.d/m.list", f"deb [signed-by={KEY}] http://user:secret@m/compute/cuda/repos /\n"
    )
    put(tmp_path, RECORD, "# EFA installer version: 1.48.0\nefa-config_1.18_all libfabric1-aws_2.6_amd64\n")
    (tmp_path / "tmp").mkdir()
    lines = f"pub:-:4096:1:A:1:::-:::scSC:\\nfpr:::::::::{'A' * 40}:\\nsub:-:1:\\nfpr:::::::::{'B' * 40}:\\n"
    program(tmp_path, "gpg", f"printf '{lines}'")
    return tmp_path


def read(root: Path) -> dict[str, Any]:
    facts = stack.read(Host(root), {"look_up": ["nvlsm", "nope"]})
    json.dumps(facts)
    return facts


def test_a_whole_host_is_read(root: Path) -> None:
    facts = read(root)
    gpu = {"device": "2901", "subvendor": "10de", "subdevice": "1999"}
    busy = facts.pop("busy")
    assert facts.pop("architecture")
    assert facts == {
        "gpus": [{"address": "0000:10:00.0", **gpu}, {"address": "0000:11:00.0", **gpu}],
        "nvswitches": ["22a3"],
        "infiniband_vpd": ["Board  SW_MNG "],
        "efa_devices": ["0000:30:00.0"],
        "kernel": KERNEL,
        "headers": True,
        "secure_boot": True,
        "mok_enrolled": True,
        "distribution": "ubuntu24.04",
        "packages": {"nvidia-dkms-580-open": "580.990.04-1", "efa-config": "1.18"},
        "holds": ["nvidia-dkms-580-open"],
        "pins": ["/etc/apt/preferences.d/nvidia-driver-pin"],
        "running_module": "580.990.04",
        "running_open": True,
        "installed_module": "580.990.04",
        "installed_open": True,
        "foreign_modules": ["nouveau"],
        "smi_gpus": 1,
        "cdi": [],
        "repositories": [
            {
                "file": "/etc/apt/sources.list.d/m.list",
                "uri": "http://m/compute/cuda/repos",
                "keys": [KEY],
                "verified": True,
            }
        ],
        "keys": [{"name": KEY, "fingerprint": "A" * 40, "unusable": ""}],
        "offers": {"nvlsm": ["2.0-1", "1.0-1"], "nope": [], "nvidia-dkms-580-open": []},
        "lists_age_days": 0,
        "efa_installed": "1.48.0",
        "efa_kind": "full",
        "efa_wrong": ["libfabric1-aws 2.6 of its record is not installed"],
        "rdma_drivers": ["mlx5_core"],
        "peer_modules": ["nvidia_peermem", "gdrdrv"],
        "peer_symbols": True,
        "efa_module": "2.13.0g",
        "gdrdrv_module": "2.5",
        "gdrdrv_device": True,
        "nvidia_fs_module": "",
        "gdscheck_lacks": "gdscheck is not installed",
        "nccl_tests": "",
        "nccl_tests_lacks": [],
        "compute": [],
        "additions": [],
        "interrupted": [],
        "unread": {},
    }
    assert busy == []


STATES = """dpkg\tamd64\t1.21\tinstall\tok\tinstalled
libcuda1\tamd64\t535.1-1\thold\tok\tinstalled
libcuda1\ti386\t525.1-1\tinstall\tok\tconfig-files
nvidia-smi\tall\t535.1-1\thold\tok\thalf-configured
nvidia-modprobe\tamd64\t535.1-1\thold\tok\tconfig-files
libnvidia-ptxjit\ti386\t535.1-1\tinstall\tok\tinstalled
"""


def test_packages_of_two_architectures_and_holds_of_half_done_ones_are_read(root: Path) -> None:
    put(root, "/run/states", STATES)
    put(root, "/var/lib/apt/extended_states", "Package: libcuda1\nArchitecture: i386\nAuto-Installed: 1\n\n")
    facts = read(root)
    assert facts["packages"] == {"libcuda1": "535.1-1"}
    assert facts["holds"] == ["libcuda1", "nvidia-modprobe", "nvidia-smi"]
    assert facts["interrupted"] == ["nvidia-smi"]
    assert deb.states(Host(root), ["libcuda1", "libcuda1:i386", "libnvidia-ptxjit"]) == {
        "libcuda1": "535.1-1 manual hold",
        "libcuda1:i386": "config-files",
        "libnvidia-ptxjit": None,
    }


@pytest.mark.parametrize(
    ("symbols", "expected"),
    [("0 T ib_register_client\t[ib_core]\n", False), ("0 T ib_register_peer_memory_client_old\n", False)],
)
def test_an_ib_core_without_the_interface_is_read_as_such(root: Path, symbols: str, expected: bool) -> None:
    put(root, "/proc/kallsyms", symbols)
    assert read(root)["peer_symbols"] is expected


def test_modules_without_a_version_are_in_tree_for_efa_and_unreadable_for_gdrdrv(root: Path) -> None:
    put(root, "/sys/module/nvidia_fs/version", "2.26.6\n")
    for name in ("efa", "gdrdrv"):
        (root / f"sys/module/{name}/version").unlink()
    (root / "dev/gdrdrv").unlink()
    facts = read(root)
    assert (facts["efa_module"], facts["gdrdrv_module"], facts["gdrdrv_device"]) == ("", None, False)
    assert facts["nvidia_fs_module"] == "2.26.6"
    assert facts["unread"] == {"gdrdrv_module": "/sys/module/gdrdrv/version is missing"}


def test_adapters_without_a_named_driver_and_an_ib_core_that_is_not_loaded(root: Path) -> None:
    put(root, "/sys/class/infiniband/mlx5_1/device/uevent", "PCI_CLASS=20700\n")
    (root / "sys/module/ib_core/refcnt").unlink()
    (root / "sys/module/ib_core").rmdir()
    facts = read(root)
    assert (facts["rdma_drivers"], facts["peer_symbols"]) == (None, None)
    assert facts["unread"] == {"rdma_drivers": "/sys/class/infiniband/mlx5_1/device/uevent names no driver"}


def test_the_facts_are_those_that_decisions_read(root: Path) -> None:
    plain = json.loads(json.dumps(read(root)))
    facts = host_gpu_facts(plain)
    assert plain.keys() == {field.name for field in fields(HostGpuFacts)}
    assert (facts.gpus or ())[0] == PciGpu("0000:10:00.0", "2901", "10de", "1999")
    assert package_set(facts, read_variables({"gpu_stack": {"driver": 580}}, "all"), knowledge())
    assert hash(facts)


def test_an_empty_folder_has_no_facts_but_reasons(tmp_path: Path) -> None:
    facts = read(tmp_path)
    known = {name: value for name, value in facts.items() if value is not None}
    nccl = {"nccl_tests", "nccl_tests_lacks", "compute"}  # of a request without them
    assert known.keys() == {"architecture", "cdi", "pins", "busy", "additions", "gdscheck_lacks", "unread", *nccl}
    expected = stack.READERS.keys() - known.keys() - {"smi_gpus", "mok_enrolled", "running_open"}
    assert facts["unread"].keys() == expected


@pytest.mark.parametrize(
    ("name", "script", "fact"),
    [
        ("nvidia-smi", "echo Failed to initialize NVML >&2; exit 9", "smi_gpus"),
        ("mokutil", "echo cannot read MokListRT >&2; exit 255", "mok_enrolled"),
        ("modinfo", "echo broken >&2; exit 2", "installed_module"),
        ("dpkg-query", "exit 2", "packages"),
        ("dpkg-query", "exit 2", "holds"),
        ("gpg", "echo no valid OpenPGP data >&2; exit 2", "keys"),
        ("apt-cache", "echo The package lists are damaged >&2; exit 100", "offers"),
    ],
)
def test_a_program_that_fails_leaves_a_reason(root: Path, name: str, script: str, fact: str) -> None:
    program(root, name, script)
    facts = read(root)
    assert facts[fact] is None
    assert facts["unread"][fact]


def test_a_host_without_driver_has_none_loaded_and_none_installed(root: Path) -> None:
    (root / "sys/module/nvidia/version").unlink()
    (root / "sys/module/nvidia").rmdir()
    (root / stack.MODULE[1:]).unlink()
    program(root, "modinfo", "echo 'modinfo: ERROR: Module nvidia not found.' >&2; exit 1")
    facts = read(root)
    assert (facts["running_module"], facts["installed_module"]) == ("", "")
    assert (facts["smi_gpus"], facts["running_open"], facts["installed_open"]) == (None, None, None)
    assert facts["unread"] == {}


def test_a_proprietary_module_is_told_by_its_licence(root: Path) -> None:
    put(root, stack.MODULE, VERSION.replace("Open Kernel Module for", "x86_64 Kernel Module"))
    program(root, "modinfo", 'case $4 in version) echo 580.990.04;; license) echo "NVIDIA";; esac')
    facts = read(root)
    assert (facts["running_open"], facts["installed_open"]) == (False, False)


@pytest.mark.parametrize(
    ("release", "name"),
    [
        ('ID="rocky"\nVERSION_ID="9.6"\n', "rhel9"),
        ('ID="rhel"\nVERSION_ID="10.1"\n', "rhel10"),
        ('ID="amzn"\nVERSION_ID="2023"\n', "amzn2023"),
        ('ID=debian\nVERSION_ID="12"\n', "debian12"),
    ],
)
def test_distributions_have_the_names_of_the_package_table(root: Path, release: str, name: str) -> None:
    put(root, "/etc/os-release", release)
    assert read(root)["distribution"] == name


def test_a_machine_with_bios_has_no_secure_boot(root: Path) -> None:
    (root / stack.SECURE_BOOT[1:]).unlink()
    assert "SecureBoot" in read(root)["unread"]["secure_boot"]
    (root / "sys/firmware/efi/efivars").rmdir()
    (root / "sys/firmware/efi/runtime").unlink()
    (root / "sys/firmware/efi").rmdir()
    assert read(root)["secure_boot"] is False


def test_a_host_of_rpm_has_epochs_and_version_locks(root: Path) -> None:
    for name in ("dpkg-query", "apt-get"):
        (root / "usr/bin" / name).unlink()
    program(root, "rpm", "printf 'nvidia-driver-cuda 3:580.990.04-1.el9 installed\\nnvlsm 0:2025.1-1 installed\\n'")
    program(root, "dnf", "exit 1")
    put(root, LIST, "# added\nnvidia-driver-cuda-3:580.990.04-1.el9.*\n")
    facts = read(root)
    assert facts["packages"] == {"nvidia-driver-cuda": "3:580.990.04-1.el9", "nvlsm": "2025.1-1"}
    assert facts["holds"] == ["nvidia-driver-cuda-3:580.990.04-1.el9.*"]


def test_a_missing_program_is_named_once(root: Path) -> None:
    (root / "usr/bin/nvidia-smi").unlink()
    assert read(root)["unread"]["smi_gpus"] == "nvidia-smi: not on this host"


CDI = """---
cdiVersion: 0.7.0
kind: nvidia.com/gpu
devices:
    - name: "0"
      containerEdits:
        deviceNodes:
            - path: /dev/nvidia0
              hostPath: /dev/nvidia0
    - name: "1"
      containerEdits:
        deviceNodes:
            - path: /dev/nvidia1
containerEdits:
    mounts:
        - hostPath: /usr/lib/x86_64-linux-gnu/libcuda.so.580.178.04
          containerPath: /usr/lib/x86_64-linux-gnu/libcuda.so.580.178.04
        - hostPath: /run/nvidia-persistenced/socket
          containerPath: /run/nvidia-persistenced/socket
"""


def test_cdi_specifications_of_gpus_are_read_in_their_order_and_others_are_not(tmp_path: Path) -> None:
    put(tmp_path, "/run/cdi/nvidia.yaml", CDI)
    put(tmp_path, "/etc/cdi/old.json", json.dumps({"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": []}))
    put(tmp_path, "/etc/cdi/nic.yaml", CDI.replace("nvidia.com/gpu", "example.com/nic"))
    put(tmp_path, "/etc/cdi/management.yaml", CDI.replace("nvidia.com/gpu", "management.nvidia.com/gpu"))
    put(tmp_path, "/dev/nvidia0", "")
    put(tmp_path, "/run/nvidia-persistenced/socket", "")
    old, new = read(tmp_path)["cdi"]
    assert old == {"path": "/etc/cdi/old.json", "drivers": [], "gpus": [], "missing": []}
    assert (new["path"], new["drivers"], new["gpus"]) == ("/run/cdi/nvidia.yaml", ["580.178.04"], [0, 1])
    assert new["missing"] == ["/usr/lib/x86_64-linux-gnu/libcuda.so.580.178.04"]
