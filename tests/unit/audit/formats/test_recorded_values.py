"""Outputs recorded on real machines have the values that a person reads in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpuctl.audit.formats import mixed, recognise
from gpuctl.audit.formats.model import Record
from tests.rig.recordings import recording

DATA = Path(__file__).parents[3] / "data"
H100, RTX4090 = "NVIDIA H100 80GB HBM3", "NVIDIA GeForce RTX 4090"
FINE = {"ecc": "Enabled", "ecc_pending": "Enabled", "uncorrectable": 0}
REMAPPED = {"remap_pending": False, "remap_failure": False, "remapped": 0, "retire_pending": None}
NO_REMAP = {"remap_pending": None, "remap_failure": None, "remapped": None, "retire_pending": None}
NO_ECC = {"ecc": None, "ecc_pending": None, "uncorrectable": None, **NO_REMAP}
SXM = {"model": H100, "memory_mib": 81559, "power_limit_w": 700, "default_power_limit_w": 700, "max_sm_mhz": 1980}
_H100 = {**SXM, **FINE, **REMAPPED, "mig": "Disabled", "fabric_state": "Completed", "fabric_status": "Success"}
_SLOWED = {"slowed_by": ["hw_slowdown", "hw_power_brake_slowdown"], "persistence": "Enabled", "processes": []}
_4090 = {
    "model": RTX4090, "memory_mib": 24564, "power_limit_w": 450, "max_sm_mhz": 3105, "ecc": "Disabled", "mig": None,
    "slowed_by": ["gpu_idle"], "fabric_state": None,
}  # fmt: skip
_L40S = {
    **FINE, **REMAPPED, "model": "NVIDIA L40S", "address": "00000000:01:00.0", "memory_mib": 46068, "used_mib": 1235,
    "busy_percent": 9, "sram_threshold": False, "recovery": "None", "persistence": "Disabled", "temperature_c": 54,
    "unrepairable": None, "performance_state": "P0",
    "margin_c": 34, "power_limit_w": 350, "default_power_limit_w": 350, "max_sm_mhz": 2520, "slowed_by": [],
    "compute_mode": "Default", "fabric_state": None, "mig": None,
}  # fmt: skip
_MIG590 = {
    **SXM, **FINE, **NO_REMAP, "address": "00000000:00:09.0", "mig": "Enabled", "used_mib": 11125, "busy_percent": None,
    "sram_threshold": False, "recovery": "None", "slowed_by": [], "temperature_c": 53, "margin_c": 24,
    "persistence": "Enabled", "compute_mode": "Default", "fabric_state": "Completed", "nvlink_domain": None,
}  # fmt: skip
# Recording -> driver, GPUs that it states, and values of GPUs by their number.
GPUS: dict[str, tuple[str | None, int | None, dict[int, dict[str, Any]]]] = {
    "q_h100_8g_535161.txt": (
        "535.161.08", 8,
        {
            number: {**_H100, **_SLOWED, "minor": number, "address": f"00000000:{bus}:00.0", "temperature_c": now,
                     "margin_c": margin, "used_mib": 0}
            for number, (bus, now, margin) in enumerate(
                [("19", 29, 56), ("3B", 29, 57), ("4C", 30, 56), ("5D", 30, 57), ("9B", 31, 55), ("BB", 32, 55),
                 ("CB", 32, 55), ("DB", 31, 55)]
            )
        },
    ),
    "q_rtx4090_8g_535154.txt": (
        "535.154.05", 8,
        {
            number: {**_4090, "address": f"00000000:{bus}:00.0", "minor": minor, "used_mib": used,
                     "temperature_c": now, "margin_c": margin}
            for number, (bus, minor, used, now, margin) in enumerate(
                [("01", 2, 6730, 31, 52), ("21", 3, 21958, 32, 52), ("41", 1, 2520, 32, 51), ("61", 0, 5532, 30, 53),
                 ("81", 6, 9964, 32, 51), ("A1", 7, 5824, 32, 52), ("C1", 5, 2064, 31, 53), ("E1", 4, 15928, 28, 55)]
            )
        },
    ),
    "q_a10_1g_535.txt": (
        "535.129.03", 1,
        {0: {**FINE, "model": "NVIDIA A10", "address": "00000000:07:00.0", "remap_pending": True,
             "remap_failure": False,
             "remapped": 4, "uuid": "GPU-73d12ef7-f589-f867-4259-c7090ab44736", "persistence": "Enabled", "mig": None}},
    ),
    "q_titanv_1g_560.txt": (
        "560.35.03", 1,
        {0: {**NO_ECC, "model": "NVIDIA TITAN V", "memory_mib": 12288, "used_mib": 290, "persistence": "Disabled",
             "temperature_c": 44, "margin_c": None, "slow_at_c": 97, "power_limit_w": 250, "slowed_by": ["gpu_idle"],
             "processes": [], "max_sm_mhz": 1912}},
    ),
    "q_a100_xid63_remap_pending_excerpt.txt": (
        "510.73.08", 1,
        {0: {"model": "NVIDIA A100-SXM4-80GB", "address": "00000000:10:1C.0", "remap_pending": True, "remapped": 0,
             "remap_failure": False, "uncorrectable": 0, "ecc": None, "persistence": None, "slowed_by": None}},
    ),
    "azure_nvsmi8_bad.txt": (
        "535.86.10", 8,
        {number: {"retire_pending": number in (1, 3, 5, 7), "address": f"0000000{number + 1}:00:00.0", "ecc": None}
         for number in range(8)},
    ),
    "azure_nvsmi8_good.txt": ("535.86.10", 8, {number: {"retire_pending": False} for number in range(8)}),
    "l40s595_q_load.txt": ("595.80", 1, {0: {**_L40S, "minor": 0}}),
    "l40s595_querygpu_all_load.csv": ("595.80", 1, {0: _L40S}),
    "h100_mig590_q_load.txt": ("590.48.01", 1, {0: {**_MIG590, "minor": 0}}),
    "h100_mig590_querygpu_all_load.csv": ("590.48.01", 1, {0: _MIG590}),
    "x_a100-sxm4-mig.xml": (
        "510.47.03", 1,
        {0: {"model": "NVIDIA A100-SXM4-40GB", "mig": "Enabled", "memory_mib": 40960, "used_mib": 38, "ecc": "Enabled",
             "persistence": "Disabled", "temperature_c": 36, "slow_at_c": 89, "power_limit_w": 400, "max_sm_mhz": 1410,
             "busy_percent": None, "retire_pending": None, "compute_mode": "Default"}},
    ),
    "x_a100_pcie_8g_mig_mixed_535.xml": (
        "535.129.03", 8,
        {number: {"minor": number, "mig": "Enabled" if number in (2, 3) else None, "persistence": "Enabled"}
         for number in (0, 1, 2, 3, 4)},
    ),
    "x_h100_8g_driver570.xml": (
        "570.86.15", 8,
        {0: {**_H100, "persistence": "Disabled", "recovery": "None", "temperature_c": 33, "margin_c": 54,
             "used_mib": 1},
         1: {"minor": 1, "persistence": "Disabled", "used_mib": 1}},
    ),
    "x_rtx-2080-win.xml": (
        "516.59", 1,
        {0: {**NO_ECC, "model": "NVIDIA GeForce RTX 2080", "minor": None, "persistence": None, "used_mib": 862,
             "temperature_c": 29, "slow_at_c": 97, "power_limit_w": 275, "busy_percent": 2, "max_sm_mhz": 3060}},
    ),
    "x_rtx-3060.xml": (
        "515.65.01", 1,
        {0: {**NO_ECC, "model": "NVIDIA GeForce RTX 3060 Laptop GPU", "power_limit_w": None, "memory_mib": 6144,
             "temperature_c": 45, "slow_at_c": 102, "persistence": "Disabled", "max_sm_mhz": 2100}},
    ),
    "x_rtx-4090-driver-535.xml": (
        "535.86.05", 1,
        {0: {**REMAPPED, "model": RTX4090, "ecc": "Disabled", "temperature_c": 40, "margin_c": 43, "max_sm_mhz": 3120,
             "persistence": "Enabled", "power_limit_w": 450, "used_mib": 2}},
    ),
    "x_rtx-pro-6000-driver-580.xml": (
        None, None, {0: {"model": "NVIDIA RTX PRO 6000 Blackwell", "temperature_c": 37, "margin_c": 56, "ecc": None}},
    ),
    "x_tesla-p100.xml": (
        "510.47.03", 1,
        {0: {"model": "Tesla P100-PCIE-16GB", "ecc": "Enabled", "retire_pending": False, "remap_pending": None,
             "temperature_c": 38, "slow_at_c": 82, "power_limit_w": 250, "max_sm_mhz": 1328, "uncorrectable": 0}},
    ),
}  # fmt: skip


# Oldest and newest form, made by us from the documented format because no recording exists -> as above.
_H200 = {
    **FINE, "model": "NVIDIA H200", "memory_mib": 143771, "mig": "Disabled", "persistence": "Enabled",
    "compute_mode": "Default", "default_power_limit_w": 700, "max_sm_mhz": 1980, "fabric_state": "Completed",
    "fabric_status": "Success", "nvlink_domain": None, "sram_threshold": False, "unrepairable": False,
    "repair_pending": False, "remap_failure": False, "retire_pending": None, "banks_without_reserve": 0,
    "slow_at_c": None, "memory_limit_c": None, "most_pcie_gen": 5, "displays": [], "instances": [],
}  # fmt: skip
EXCERPTS: dict[str, tuple[str | None, int | None, dict[int, dict[str, Any]]]] = {
    "346-k40.txt": (
        "346.72", 1,
        {0: {"model": "Tesla K40c", "address": "0000:83:00.0", "minor": 1, "persistence": "Enabled", "mig": None,
             "uuid": "GPU-5f0c2a11-6f2e-4b7d-9d58-0c1b2a3d4e5f", "memory_mib": 11519, "used_mib": 213,
             "busy_percent": 98, "ecc": "Enabled", "ecc_pending": "Enabled", "uncorrectable": 2,
             **NO_REMAP, "retire_pending": True, "temperature_c": 61,
             "margin_c": None, "slow_at_c": 90, "memory_c": None, "power_limit_w": 200,
             "default_power_limit_w": 235, "max_sm_mhz": 875, "compute_mode": "Exclusive_Process",
             "pcie_gen": 3, "most_pcie_gen": 3, "fabric_state": None, "recovery": None, "sram_threshold": None,
             "slowed_by": None, "displays": []}},
    ),
    "610-h200-2gpu.txt": (
        "610.43.02", 2,
        {0: {**_H200, "minor": 0, "address": "00000000:4B:00.0", "used_mib": 0, "busy_percent": 0, "remapped": 0,
             "remap_pending": False, "recovery": "None", "slowed_by": ["gpu_idle"], "temperature_c": 41,
             "margin_c": 46, "memory_c": 44, "power_limit_w": 700, "pcie_gen": 5, "processes": []},
         1: {**_H200, "minor": 1, "address": "00000000:83:00.0", "used_mib": 140210, "busy_percent": 100,
             "uncorrectable": 1, "remapped": 1, "remap_pending": True, "recovery": "Drain and Reset",
             "slowed_by": ["sw_power_cap"], "temperature_c": 83, "margin_c": 4, "memory_c": 88,
             "power_limit_w": 600, "pcie_gen": 3,
             "processes": [{"pid": 31337, "name": "python3", "used_mib": 140190, "type": "C", "gi": None,
                            "ci": None}]}},
    ),
}  # fmt: skip


def read(name: str) -> Record:
    excerpt = DATA / name
    text = (excerpt if excerpt.exists() else recording(name)).read_text(errors="replace")
    known = recognise(text[:16384])
    assert known is not None
    return known.read(text)


def gpu_of(name: str, number: int) -> dict[str, Any]:
    gpu: dict[str, Any] = read(f"nvidia-smi/{name}").facts["gpu"]["gpus"][number]
    return gpu


def test_this_file_asserts_at_least_300_values() -> None:
    assert sum(len(values) for _, _, gpus in GPUS.values() for values in gpus.values()) >= 300


@pytest.mark.parametrize("name", [*GPUS, *EXCERPTS])
def test_gpus_have_the_values_of_the_recording(name: str) -> None:
    driver, attached, gpus = (GPUS if name in GPUS else EXCERPTS)[name]
    facts = read(f"nvidia-smi/{name}").facts["gpu"]
    assert (facts["driver"], facts["attached"]) == (driver, attached)
    for number, values in gpus.items():
        gpu = facts["gpus"][number]
        assert {key: gpu[key] for key in values} == values
        assert gpu["errors"] == {}


@pytest.mark.parametrize("name", GPUS)
def test_no_recording_is_taken_for_several_outputs(name: str) -> None:
    text = recording(f"nvidia-smi/{name}").read_text(errors="replace")
    known = recognise(text[:16384])
    assert known is not None
    assert mixed.doubts(known.name, text, known.read(text)) == []


def test_processes_and_instances_of_the_text() -> None:
    burn = gpu_of("h100_mig590_q_load.txt", 0)
    assert [(p["pid"], p["used_mib"], p["gi"], p["ci"]) for p in burn["processes"]] == [
        (21180, 2296, 2, 0), (21181, 1272, 2, 0), (21198, 7484, 2, 0),
    ]  # fmt: skip
    assert [(i["index"], i["gi"], i["memory_mib"], i["used_mib"]) for i in burn["instances"]] == [
        (0, 2, 40448, 11091), (1, 3, 20096, 17), (2, 9, 9984, 9), (3, 10, 9984, 9),
    ]  # fmt: skip
    displays = gpu_of("q_titanv_1g_560.txt", 0)["displays"]
    assert [(p["pid"], p["name"], p["used_mib"]) for p in displays] == [
        (100607, "/usr/lib/xorg/Xorg", 142), (100838, "/usr/bin/gnome-shell", 33), (101815, "/opt/test", 111),
    ]  # fmt: skip
    pids = [gpu_of("q_rtx4090_8g_535154.txt", number)["processes"][0]["pid"] for number in range(8)]
    assert pids == [2010222, 2774709, 3077587, 2007540, 3229670, 3080907, 1535847, 540189]


@pytest.mark.parametrize(
    ("name", "lanes"),
    [
        ("x_rtx-2080-win.xml", 8), ("x_rtx-3060.xml", 8), ("x_tesla-p100.xml", 16), ("q_h100_8g_535161.txt", 16),
        ("l40s595_querygpu_all_load.csv", 16),
    ],
)  # fmt: skip
def test_lanes_of_pcie(name: str, lanes: int) -> None:
    links = read(f"nvidia-smi/{name}").facts["pcie"]["links"]
    assert {(link["width"], link["most_width"]) for link in links} == {(float(lanes), 16.0)}


def test_a_log_that_was_cut_has_no_gpu_and_says_so() -> None:
    record = read("nvidia-smi/q_h100_8g_TRUNCATED_invalid.txt")
    assert record.facts == {}
    assert [str(finding.verdict) for finding in record.findings] == ["UNKNOWN", "UNKNOWN"]


# ---- links -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "gpus", "kind"),
    [
        ("topo_h100_8g_nv18_narrowcols.txt", 8, "NV18"), ("topo_8gpu_perf_readme.txt", 8, "NV18"),
        ("topo_a100_8g_nv12_narrowcols.txt", 8, "NV12"), ("topo_a800_8g_4nic.txt", 8, "NV8"),
        ("topo_h800_8g.txt", 8, "NV8"), ("topo_moc_h100_4g_12nic_ansi.txt", 4, "NV6"),
        ("topo_2gpu_phb_no_nvlink.txt", 2, "PHB"), ("l40s595_topo.txt", 1, None),
    ],
)  # fmt: skip
def test_topologies(name: str, gpus: int, kind: str | None) -> None:
    record = read(f"nvidia-smi/{name}")
    topology = record.facts["topology"]
    assert record.findings == ()
    assert topology["gpus"] == gpus
    assert len(topology["links"]) == gpus * (gpus - 1) // 2
    assert set(topology["links"].values()) == ({kind} if kind else set())


@pytest.mark.parametrize(
    ("name", "gpus", "links", "speed"),
    [
        ("nvlink_s_p4de_gpu0.txt", [0], 12, 25.0), ("nvlink_status_good.txt", [7], 12, 25.0),
        ("nvlink_status_a100_8g.txt", list(range(8)), 12, 25.0), ("nvlink_status_bad_inactive.txt", [6], 0, None),
        ("l40s595_nvlink_s.txt", [0], None, None), ("h100_mig590_nvlink_s.txt", [0], None, None),
    ],
)  # fmt: skip
def test_states_of_nvlinks(name: str, gpus: list[int], links: int | None, speed: float | None) -> None:
    found = read(f"nvidia-smi/{name}").facts["nvlink"]["gpus"]
    assert [gpu["gpu"] for gpu in found] == gpus
    for gpu in found:
        assert (gpu["links"] if links is None else len(gpu["links"])) == links
        assert set((gpu["links"] or {}).values()) == ({speed} if speed else set())


@pytest.mark.parametrize("name", ["dcgmi_nvlink_errors_h800.json.txt", "dcgmi_nvlink_errors_h800_table.txt",
                                  "dcgmi_gcm_nvlink_error_pass_output.json"])  # fmt: skip
def test_errors_of_nvlinks_in_dcgms_forms(name: str) -> None:
    record = read(f"host/{name}")
    (gpu,) = record.facts["nvlink_errors"]["gpus"]
    assert gpu["gpu"] == (1 if "table" in name else 0)
    assert gpu["errors"] == {"CRC Errors": 0, "Replay Errors": 0, "Recovery Errors": 0}
    assert record.findings == ()


# ---- DCGM ------------------------------------------------------------------------------------------------------------

DEPLOYMENT = ["Blacklist", "NVML Library", "CUDA Main Library", "Permissions and OS Blocks", "Persistence Mode",
              "Environment Variables", "Page Retirement/Row Remap", "Graphics Processes", "Inforom"]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "version", "statuses"),
    [
        ("dcgmi_gcm_diag_pass_output.json", None, dict.fromkeys(DEPLOYMENT, "pass")),
        ("dcgmi_gcm_diag_warn_output.json", None, {**dict.fromkeys(DEPLOYMENT, "pass"), "Persistence Mode": "warn"}),
        ("dcgmi_diag_r1_v4_gb10_fail.json", "4.2.3", {"software": "fail"}),
        ("dcgmi_diag_r2_p4de.txt", "3.3.3",
         dict.fromkeys(["Denylist", *DEPLOYMENT[1:], "PCIe", "GPU Memory"], "pass")),
        ("dcgmi_diag_pass_deepops_truncated.txt", None,
         {name.partition("/")[0]: "pass" for name in DEPLOYMENT}),
        ("dcgmi_diag_fail_deepops.txt", None,
         {name.partition("/")[0]: "fail" if number > 3 else "pass" for number, name in enumerate(DEPLOYMENT)}),
    ],
)  # fmt: skip
def test_diagnoses(name: str, version: str | None, statuses: dict[str, str]) -> None:
    facts = read(f"host/{name}").facts["dcgm"]
    assert facts["version"] == version
    assert {test["name"]: test["status"] for test in facts["tests"]} == statuses


def test_the_error_of_dcgm_4_has_its_id_severity_gpu_and_note() -> None:
    facts = read("host/dcgmi_diag_r1_v4_gb10_fail.json").facts["dcgm"]
    (test,) = facts["tests"]
    assert test["entity"] == "GPU 0"
    assert [(warning["id"], warning["severity"]) for warning in test["warnings"]] == [(29, 5)]
    assert facts["driver"] == "580.82.09"
    assert "9223372036854775794" in facts["notes"][0]


# ---- adapters and file systems ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "ports", "down", "rates", "infiniband"),
    [
        ("gpud_ibstat.47.0.h100.some.down.0.txt", 12, {"mlx5_2", "mlx5_7", "mlx5_8"}, {400.0, 100.0, 40.0}, 8),
        ("gpud_ibstat.47.0.h100.some.down.with.polling.1.txt", 12, {"mlx5_11", "mlx5_5"}, {400.0, 100.0, 40.0}, 0),
        ("gpud_ibstat.47.0.h100.all.active.0.txt", 12, set(), {400.0, 100.0}, 0),
        ("gpud_ibstat.47.0.a100.all.active.0.txt", 9, set(), {200.0}, 8),
        ("gpud_ibstat.39.0.a100.failed.ibpanic.exit-255.0.txt", 8, set(), {200.0}, 8),
        ("gpud_ibstatus.39.0.a100.all.active.0.txt", 9, set(), {200.0, 40.0}, 8),
        ("ibstat_moc_h100_12ca_ethernet_mixed.txt", 12,
         {"mlx5_1", "mlx5_6", "mlx5_7", "mlx5_8", "mlx5_9", "mlx5_10", "mlx5_11"}, {25.0, 40.0, 400.0}, 0),
    ],
)  # fmt: skip
def test_ports(name: str, ports: int, down: set[str], rates: set[float], infiniband: int) -> None:
    found = read(f"host/{name}").facts["rdma"]["ports"]
    assert len(found) == ports
    assert {port["device"] for port in found if port["state"] != "ACTIVE"} == down
    assert {port["rate_gbps"] for port in found} == rates
    assert sum(port["link"] == "InfiniBand" for port in found) == infiniband


def test_an_ibstat_that_failed_after_its_ports_is_unknown() -> None:
    (finding,) = read("host/gpud_ibstat.39.0.a100.failed.ibpanic.exit-255.0.txt").findings
    assert str(finding.verdict) == "UNKNOWN"
    assert "ibpanic" in finding.message


def test_counters_of_an_ena_interface() -> None:
    (adapter,) = read("host/ethtool_S_ena_ens5.txt").facts["totals"]["adapters"]
    counters = adapter["counters"]
    assert counters["bw_in_allowance_exceeded"] == 11072
    assert counters["conntrack_allowance_available"] == 51286
    assert counters["queue_0_tx_cnt"] == 3925390
    assert [counters[name] for name in ("tx_timeout", "admin_to", "pps_allowance_exceeded")] == [0, 0, 0]


def test_targets_of_lustre() -> None:
    targets = read("host/lfs_df_unbalanced.txt").facts["storage"]["targets"]
    assert [(t["target"], t["used_percent"]) for t in targets] == [
        ("testfs-MDT0000", 4), ("testfs-MDT0001", 4), ("testfs-OST0000", 37), ("testfs-OST0001", 37),
        ("testfs-OST0002", 99), ("testfs-OST0003", 37), ("testfs-OST0004", 37), ("testfs-OST0005", 36),
    ]  # fmt: skip
    assert {t["mount"] for t in targets} == {"/mnt/testfs"}
    assert targets[4]["available"] == "55.1M"


def test_stripes_of_lustre() -> None:
    plain, composite = (
        read(f"host/lfs_getstripe_{form}.txt").facts["storage"]["stripes"] for form in ("plain", "dom_composite")
    )
    assert plain == [{"path": "./sod_hdf5_chk_0000", "counts": [4]}]
    assert composite == [{"path": "test2_domfile", "counts": [-1]}]
