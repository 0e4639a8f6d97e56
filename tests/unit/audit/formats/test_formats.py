"""Outputs are recognised by their content, and what they lack or refuse is never OK."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from gpuctl.audit import knowledge, merge
from gpuctl.audit.formats import recognise
from gpuctl.domain.findings import Finding, Verdict, overall, problems
from gpuctl.workflows import audit_rules
from tests.rig.recordings import recording

DATA = Path(__file__).parents[3] / "data/nvidia-smi"
CSV = "index, name, uuid, pci.bus_id, ecc.mode.current, remapped_rows.pending, remapped_rows.failure"
ROW = "0, NVIDIA H200, GPU-1, 00000000:06:00.0, Enabled, No, No"
TOPO = """        GPU0    GPU1    GPU2    GPU3    CPU Affinity
GPU0     X      NV18    NV18    NV18    0-15
GPU1    NV18     X      NV18    NV18    0-15
GPU2    NV18    NV18     X      NV18    0-15
GPU3    NV18    NV18    NV18     X      0-15
"""
LINKS = "GPU 0: NVIDIA H100 (UUID: GPU-0)\n\t Link 0: 26.562 GB/s\n\t Link 1: 26.562 GB/s\n"
LFS = """UUID                   1K-blocks        Used   Available Use% Mounted on
fs-MDT0000_UUID          4611684       20480     4591204   4% /fsx[MDT:0]
fs-OST0000_UUID       1181121536   741121536   440000000  {first}% /fsx[OST:0]
fs-OST0001_UUID       1181121536   741121536   440000000  63% /fsx[OST:1]
{more}
filesystem_summary:   2362243072  1482243072   880000000  63% /fsx
"""
V4 = {"name": "memory", "results": [{"entity_group": "GPU", "entity_id": n, "status": "Pass"} for n in range(2)]}


def judged(text: str) -> list[Finding]:
    known = recognise(text)
    assert known is not None, text
    facts, findings, _ = merge.merged({"x": known.read(text)})
    return [*findings, *(audit_rules.judge_outputs({"n1": facts}, knowledge.dcgm_errors()) if facts else [])]


def bad(text: str) -> list[tuple[str, str, str]]:
    """(check, verdict, message) of what is not OK."""
    return [(f.check, str(f.verdict), f.message) for f in judged(text) if f.verdict is not Verdict.OK]


def diagnosis(*tests: dict[str, Any], **more: Any) -> str:
    root = {"test_categories": [{"category": "Hardware", "tests": list(tests)}]} if tests else {}
    return json.dumps({"DCGM Diagnostic": {**root, **more}, "metadata": {"version": "4.2.3"}})


def result(status: str, *warnings: dict[str, Any]) -> dict[str, Any]:
    row = {"entity_group": "GPU", "entity_id": 3, "status": status, "warnings": list(warnings)}
    return {"name": "memory", "results": [row], "test_summary": {"status": status}}


# ---- nvidia-smi ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("header", [CSV, CSV.replace("name", "gpu_name").replace("pci.bus_id", "gpu_bus_id")])
def test_columns_that_were_not_queried_are_not_judged_and_named(header: str) -> None:
    findings = judged(f"{header}\n{ROW}\n")
    (note,) = [f for f in findings if f.check == "file"]
    assert "not judged: clocks, persistence" in note.message
    assert {f.check for f in findings if f.verdict is Verdict.OK} == {"gpu-count", "gpu-model", "file"}
    (memory,) = problems(findings)
    assert "ecc_pending, uncorrectable, remapped: not in the output" in memory.message


@pytest.mark.parametrize("text", ["[Unknown Error]", "ERR!", "[GPU requires reset]", "N/A", "", "eight"])
@pytest.mark.parametrize("name", ["570-h100-8gpu.xml", "610-h200-2gpu.txt"])
def test_a_number_of_gpus_that_cannot_be_read_is_unknown(name: str, text: str) -> None:
    log = (DATA / name).read_text()
    broken, count = re.subn(r"(<attached_gpus>|Attached GPUs +: )\d+", lambda match: f"{match[1]}{text}", log)
    assert count == 1
    assert ("gpu-count", "UNKNOWN") in [one[:2] for one in bad(broken)]


def test_a_value_that_the_driver_prints_and_the_log_lacks_is_unknown() -> None:
    log = (DATA / "570-h100-8gpu.xml").read_text()
    healthy = {f.check for f in judged(log) if f.verdict is Verdict.OK}
    assert "fabric-manager" not in [one[0] for one in bad(log)]
    for element, check in {
        "remapped_row_pending": "gpu-memory", "dram_uncorrectable": "gpu-memory", "gpu_recovery_action": "gpu-memory",
        "gpu_temp_tlimit": "temperature", "default_power_limit": "power-limit", "sram_threshold_exceeded": "sram",
        "clocks_event_reason_sw_power_cap": "clocks", "current_link_width": "pcie", "fabric": "fabric-manager",
        "state": "fabric-manager", "status": "fabric-manager", "gpu_util": "pcie-speed",
        "performance_state": "pcie-speed",
    }.items():  # fmt: skip
        assert check in healthy or check == "fabric-manager"
        cut = re.sub(rf"\s*<{element}>.*?</{element}>", "", log, flags=re.DOTALL)
        assert (check, "UNKNOWN") in [one[:2] for one in bad(cut)], element


@pytest.mark.parametrize("lost", [1, 4, 8])
def test_lanes_that_cannot_be_read_are_unknown_whatever_the_other_gpus_have(lost: int) -> None:
    log = (DATA / "570-h100-8gpu.xml").read_text()
    text = re.sub(r"\s*<max_link_width>.*?</max_link_width>", "", log, count=lost)
    assert [found[1] for found in bad(text) if found[0] == "pcie"] == ["UNKNOWN"] * lost


@pytest.mark.parametrize("error", ["[GPU requires reset]", "[Unknown Error]", "ERR!", "[GPU is lost]"])
def test_an_error_in_a_cell_fails_whatever_the_column_is(error: str) -> None:
    for text in (ROW.replace("No, No", f"{error}, No"), ROW.replace("0, NVIDIA H200", f"{error}, NVIDIA H200")):
        assert ("gpu-memory", "FAIL") in [one[:2] for one in bad(f"{CSV}\n{text}\n")]
    assert ("file", "FAIL") in [one[:2] for one in bad(f"NVIDIA H200, {error}\n")]


def test_numbers_without_a_header_have_no_names() -> None:
    assert bad("0, NVIDIA H200, 38, 79.53\n") == [("file", "UNKNOWN", "x: it has values without their names")]


def test_the_mask_of_reasons_is_read_as_bits() -> None:
    head = "name, clocks_event_reasons.active"
    assert ("clocks", "FAIL") in [one[:2] for one in bad(f"{head}\nNVIDIA H100, 0x0000000000000048\n")]
    assert ("clocks", "WARN") in [one[:2] for one in bad(f"{head}\nNVIDIA H100, 0x0000000000000004\n")]
    assert "clocks" not in [one[0] for one in bad(f"{head}\nNVIDIA H100, 0x0000000000000001\n")]
    assert ("clocks", "UNKNOWN") in [one[:2] for one in bad(f"{head}\nNVIDIA H100, [Requested functionality]\n")]


@pytest.mark.parametrize(
    "text",
    [
        "gpu_uuid, retired_pages.address, retired_pages.cause\n" + "GPU-1, [N/A], Single Bit ECC\n" * 2,
        "pid, process_name, used_gpu_memory [MiB]\n12, python, 524 MiB\n",
        "# gpu    pwr  gtemp\n# Idx      W      C\n    0     79     38\n",
        "GPU 0: NVIDIA H200 (UUID: GPU-1)\n",
        "\t\x1b[4mGPU0\tCPU Affinity\tNUMA Affinity\x1b[0m\nGPU0\t X \t0-15\t0\n",
    ],
)
def test_lists_have_nothing_to_judge_and_are_recognised(text: str) -> None:
    assert overall(judged(text)) is Verdict.OK


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([CSV, ROW, ROW[:30]], "line 3 does not have 7 values"),
        ([CSV, ROW, ROW], "a GPU is listed several times"),
        ([CSV.replace("index", "count"), "8" + ROW[1:]], "it has 1 GPU of 8"),
        ([CSV], "it has no GPU"),
    ],
)
def test_a_csv_that_is_not_whole_is_unknown(lines: list[str], message: str) -> None:
    assert any(verdict == "UNKNOWN" and message in text for _, verdict, text in bad("\n".join(lines) + "\n"))


@pytest.mark.parametrize(
    "text",
    [
        "Unable to determine the device handle for GPU0000:91:00.0: Unknown Error",
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that it is installed.",
        "Failed to initialize NVML: Driver/library version mismatch",
        "No devices were found",
    ],
)
def test_sentences_by_which_nvidia_smi_refuses_fail(text: str) -> None:
    ((check, verdict, message),) = bad(f"$ nvidia-smi\n{text}\n")
    assert (check, verdict) == ("gpu-count", "FAIL")
    assert text[:40] in message


def test_a_pair_with_fewer_nvlinks_than_the_others_fails() -> None:
    assert bad(TOPO) == []
    rows = TOPO.replace("NV18     X      NV18    0-15", "NV18     X      NV17    0-15")
    one_sided = [one for one in bad(rows) if one[0] == "file"]
    assert ("topology", "UNKNOWN") in [one[:2] for one in bad(rows)]
    ((_, verdict, message),) = bad(rows.replace("NV18    NV18    NV18     X", "NV18    NV18    NV17     X"))
    assert (verdict, message) == ("FAIL", "1 of 6 pairs of GPUs have no NV18: GPU2-GPU3: NV17")
    assert [(one[1], "not symmetric" in one[2]) for one in one_sided] == [("UNKNOWN", True)]
    assert "no whole row of GPU3" in bad(TOPO[: TOPO.rindex("GPU3")])[0][2]


def test_pairs_of_a_mesh_by_design_are_no_fault() -> None:
    mesh = TOPO
    for row, cells in enumerate(["X NV1 NV2 SYS", "NV1 X SYS NV2", "NV2 SYS X NV1", "SYS NV2 NV1 X"]):
        mesh = "\n".join(f"GPU{row} {cells}" if line.startswith(f"GPU{row} ") else line for line in mesh.splitlines())
    assert bad(mesh) == []


def test_nvlinks_without_their_errors_are_active_only() -> None:
    assert bad(LINKS) == []
    assert any("was not asked for its errors" in f.message for f in judged(LINKS))
    fewer = LINKS + "GPU 1: NVIDIA H100 (UUID: GPU-1)\n\t Link 0: 26.562 GB/s\n"
    assert any("GPU 1 lists 1 NVLinks, others 2" in message for _, _, message in bad(fewer))
    assert bad(LINKS.replace("1: 26.562 GB/s", "1: <inactive>"))[0][1] == "FAIL"


# ---- DCGM ------------------------------------------------------------------------------------------------------------


def test_a_diagnosis_that_passed_names_its_tests() -> None:
    (finding,) = judged(diagnosis(V4))
    assert (finding.verdict, finding.message) == (Verdict.OK, "1 test of DCGM passed: memory")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (diagnosis(), "no test of its diagnosis ran"),
        (diagnosis({"name": "memory", "results": []}), "test memory: missing"),
        (diagnosis(result("Skip")), "no test of its diagnosis ran: skipped: memory"),
        (diagnosis(V4, result("Not Run")), "test memory, GPU 3: not run"),
        (diagnosis(V4, result("Passed?")), "test memory, GPU 3: passed?"),
        (diagnosis(runtime_error="nvvs is missing"), "its diagnosis has no result: nvvs is missing"),
        (diagnosis(V4)[:-40], "its JSON is cut"),
        ("Error: unable to establish a connection to the specified host: localhost", "DCGM did not answer"),
    ],
)
def test_what_did_not_run_has_not_passed(text: str, message: str) -> None:
    findings = judged(text)
    assert overall(findings) is Verdict.UNKNOWN
    assert any(message in finding.message for finding in findings)


def test_the_action_follows_the_severity_and_the_id() -> None:
    warning = {"warning": "GPU 3 has remap errors", "error_id": 80, "error_severity": 6, "error_category": 4}
    (finding,) = problems(judged(diagnosis(V4, result("Fail", warning))))
    assert (finding.verdict, finding.numbers) == (Verdict.FAIL, {"error_id": 80})
    assert "reset the GPU" in finding.hint
    (unknown_id,) = problems(judged(diagnosis(result("Fail", {"warning": "x", "error_id": 999, "error_severity": 2}))))
    assert "field diagnostic" in unknown_id.hint


def test_persistence_mode_alone_is_a_warning_and_not_beside_another_error() -> None:
    off = {"warning": "Persistence mode is disabled", "error_id": 29, "error_severity": 5}
    assert [f.verdict for f in judged(diagnosis(result("Fail", off)))] == [Verdict.WARN]
    both = result("Fail", off, {"warning": "NVML", "error_id": 40, "error_severity": 3})
    assert overall(judged(diagnosis(both))) is Verdict.FAIL


def test_the_summary_counts_where_it_is_worse_than_its_gpus() -> None:
    test = {**V4, "test_summary": {"status": "Fail"}}
    assert overall(judged(diagnosis(test))) is Verdict.FAIL


def test_iterations_and_a_banner_before_the_json() -> None:
    inner = {"test_categories": [{"category": "Hardware", "tests": [result("Fail")]}]}
    text = "Running level 2 diagnostic.\n" + json.dumps({"DCGM Diagnostic": {"iterations": [{"result": inner}]}})
    assert overall(judged(text)) is Verdict.FAIL


def test_dcgm_3_with_upper_case_and_gpu_ids() -> None:
    row = {"gpu_ids": "0,3", "status": "FAIL", "warnings": "Pcie Bandwidth is low"}
    test = {"name": "PCIe", "results": [row]}
    text = json.dumps({"DCGM GPU Diagnostic": {"test_categories": [{"category": "Integration", "tests": [test]}]}})
    ((_, verdict, message),) = bad(text)
    assert (verdict, message) == ("FAIL", "test PCIe, GPU 0,3: fail: Pcie Bandwidth is low")


@pytest.mark.parametrize(
    ("word", "verdict"), [("Healthy", "OK"), ("Warning", "WARN"), ("Failure", "FAIL"), ("?", "UNKNOWN")]
)
def test_overall_health(word: str, verdict: str) -> None:
    table = f"+---+\n| Overall Health            | {word}         |\n"
    document = json.dumps({"body": {"Overall Health": {"value": word}}, "header": ["Health Monitor Report"]})
    assert [str(f.verdict) for f in judged(table)] == [verdict]
    assert [str(f.verdict) for f in judged(document)] == [verdict]


# ---- adapters and file systems ---------------------------------------------------------------------------------------


def test_counters_since_boot_are_a_warning_at_most() -> None:
    text = "NIC statistics:\n     rx_packets: 12\n     link_down_events_phy: 3\n     rx_discards_phy: 0\n"
    ((check, verdict, message),) = bad("$ ethtool -S eth2\n" + text)
    assert (check, verdict) == ("counters", "WARN")
    assert message == "eth2: errors since the driver was loaded: link_down_events_phy 3"
    assert bad(text.replace(": 3", ": 0")) == []
    assert bad("NIC statistics:\n     rx_packets: 12 (cut")[0][1] == "UNKNOWN"


@pytest.mark.parametrize(
    ("first", "more", "verdict", "message"),
    [
        (96, "", "FAIL", "fs-OST0000: 96 % of its space is used"),
        (86, "", "WARN", "fs-OST0000: 86 % of its space is used"),
        (20, "", "WARN", "unevenly: 20 to 63 %"),
        (63, "OST0002             : inactive device", "FAIL", "OST0002 is not served: inactive device"),
        (63, "fs-OST0003_UUID 11811215", "UNKNOWN", "1 line not understood"),
    ],
)
def test_targets_of_lustre(first: int, more: str, verdict: str, message: str) -> None:
    assert bad(LFS.format(first=60, more="")) == []
    (_, judged_as, text), *_ = bad(LFS.format(first=first, more=more))
    assert judged_as == verdict
    assert message in text


def test_inodes_of_lustre_are_named_so() -> None:
    text = LFS.format(first=97, more="").replace("1K-blocks        Used   Available Use%", "Inodes  IUsed  IFree IUse%")
    assert "97 % of its inodes is used" in bad(text)[0][2]


def test_mounts_of_nfs_that_lose_data_or_hang() -> None:
    text = "/dev/vda1 on / type ext4 (rw)\n{} on /data type nfs4 (rw,{})\n"
    assert bad(text.format("nas:/x", "hard")) == []
    assert "is mounted with soft" in bad(text.format("nas:/x", "soft"))[0][2]
    assert "is mounted with softerr" in bad(text.format("nas:/x", "softerr"))[0][2]
    assert bad(text.format("nas:/x", "ha"))[0][:2] == ("storage", "UNKNOWN")
    assert "lacks noresvport" in bad(text.format("fs-1.efs.us-east-1.amazonaws.com:/", "hard"))[0][2]
    assert bad(text.format("fs-1.efs.us-east-1.amazonaws.com:/", "hard,noresvport")) == []


def test_a_port_that_is_cut_is_unknown() -> None:
    text = (
        "CA 'mlx5_0'\n\tNumber of ports: 1\n\tPort 1:\n\t\tState: Active\n\t\tPhysical state: LinkUp\n\t\tRate: 400\n"
    )
    assert bad(text + "\t\tLink layer: InfiniBand\n") == []
    assert bad(text)[0] == ("file", "UNKNOWN", "x: port mlx5_0:1 is not whole")


H100 = "nvidia-smi/x_h100_8g_driver570.xml"


@pytest.mark.parametrize(
    ("old", "new", "verdict", "text"),
    [
        ("<bandwidth>N/A<", "<bandwidth>Degraded<", "FAIL", "NVLink fabric: bandwidth Degraded"),
        ("<route_unhealthy>N/A<", "<route_unhealthy>True<", "FAIL", "route unhealthy True"),
        ("<access_timeout_recovery>N/A<", "<access_timeout_recovery>?<", "UNKNOWN", "access timeout recovery: ?"),
        ("<state>Completed<", "<state>N/A<", "UNKNOWN", "whether GPU 0 joined the NVLink fabric is unknown"),
        ("<dram_uncorrectable>0<", "<dram_uncorrectable>7<", "FAIL", "7 uncorrectable errors since the driver was"),
        ("<remapped_row_unc>0<", "<remapped_row_unc>512<", "FAIL", "512 rows remapped after uncorrectable errors"),
        (
            "<row_remapper_histogram_none>0 bank(s)<",
            "<row_remapper_histogram_none>3 bank(s)<",
            "WARN",
            "3 banks of its memory have no spare rows left",
        ),
        ("<sram_threshold_exceeded>No<", "<sram_threshold_exceeded>N/A<", "UNKNOWN", "of the GPUs beside it, and not"),
    ],
)
def test_what_a_gpu_reports_against_itself_or_leaves_out_is_never_healthy(
    old: str, new: str, verdict: str, text: str
) -> None:
    whole = recording(H100).read_text()
    assert old in whole
    found = bad(whole.replace(old, new, 1))
    assert [kind for _, kind, message in found if text in message] == [verdict], found


def test_an_nvlink_that_is_slower_than_the_others_or_left_out_is_not_well() -> None:
    text = recording("nvidia-smi/nvlink_status_good.txt").read_text()
    slow = bad(re.sub(r"(Link 0: )25", r"\g<1>12.5", text, count=1))
    assert ("nvlink", "FAIL", "GPU 7: NVLink 0 at 12.5 GB/s, others at 25") in slow
    gap = bad(re.sub(r"\n.*Link 5: .*", "", text, count=1))
    assert [verdict for _, verdict, message in gap if "does not list NVLink 5" in message] == ["UNKNOWN"]


def test_counters_of_a_link_without_a_number_are_unknown() -> None:
    text = recording("host/dcgmi_nvlink_errors_h800_table.txt").read_text()
    for damaged in (text.replace("| Link 3 ", "| Link ERR ", 1), text.replace("-> Replay Error", "-> Replay E?", 1)):
        assert damaged != text
        assert "UNKNOWN" in {verdict for _, verdict, _ in bad(damaged)}
