"""Folders of outputs: files are grouped by node, and none is left out in silence."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from gpuctl.audit import knowledge, recorded
from gpuctl.core.errors import InvalidInput
from gpuctl.domain.findings import Finding, Verdict
from gpuctl.workflows import audit

CATALOGUE = knowledge.catalogue()
SMI = (Path(__file__).parents[2] / "data/nvidia-smi/570-h100-8gpu.xml").read_text()
SICK = SMI.replace("<remapped_row_pending>No", "<remapped_row_pending>Yes", 1)
XID = "[    5.000001] NVRM: Xid (PCI:0000:66:00): 79, GPU has fallen off the bus.\n"
ETHTOOL = "NIC statistics:\n     rx_packets: 12\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("n1", "n2", "n3"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "smi.xml").write_text(SMI)
    return tmp_path


def bad(folder: Path) -> list[tuple[str, str, str]]:
    findings: list[Finding] = audit.judge_path(folder, CATALOGUE)
    return [(f.check, f.subject, str(f.verdict)) for f in findings if f.verdict is not Verdict.OK]


def test_a_folder_is_a_node_and_nodes_are_compared(folder: Path) -> None:
    assert {one[0] for one in bad(folder)} <= {"persistence"}
    (folder / "n2/smi.xml").write_text(SICK.replace("570.86.15", "570.86.10"))
    (folder / "n3/dmesg.txt").write_text(XID)
    assert {one for one in bad(folder) if one[2] == "FAIL"} == {
        ("gpu-memory", "n2", "FAIL"), ("driver", "n2", "FAIL"), ("xid", "n3 GPU 0000:66:00.0", "FAIL"),
    }  # fmt: skip


def test_files_of_several_nodes_in_one_folder_are_told_apart_by_their_names(tmp_path: Path) -> None:
    for name in ("n1", "n2"):
        (tmp_path / f"{name}.smi.xml").write_text((SICK if name == "n2" else SMI).replace("GPU-", f"GPU-{name}"))
        (tmp_path / f"{name}_dmesg.txt").write_text(XID if name == "n1" else "[    1.0] Linux version 6\n")
    assert {one for one in bad(tmp_path) if one[2] == "FAIL"} == {
        ("gpu-memory", "n2", "FAIL"), ("xid", "n1 GPU 0000:66:00.0", "FAIL"),
    }  # fmt: skip
    (tmp_path / "n2.later.xml").write_text(SMI.replace("GPU-", "GPU-n2"))  # the same GPUs once more
    assert ("gpu-memory", "n2", "FAIL") in bad(tmp_path)
    (tmp_path / "n2.other.xml").write_text(SMI)
    assert ("gpu-memory", "n2.smi.xml", "FAIL") in bad(tmp_path)


def test_queries_of_the_same_gpus_complete_each_other(tmp_path: Path) -> None:
    """Several queries of one node leave nothing unknown that one of them has."""
    uuid = SMI.split("<uuid>")[1].split("<")[0]
    first = "uuid, name, ecc.mode.current, ecc.mode.pending, ecc.errors.uncorrected.volatile.total, gpu_recovery_action"
    second = (
        "uuid, remapped_rows.pending, remapped_rows.failure, remapped_rows.uncorrectable, remapped_rows.correctable"
    )
    (tmp_path / "a.csv").write_text(f"{first}\n{uuid}, NVIDIA H100 80GB HBM3, Enabled, Enabled, 0, None\n")
    (tmp_path / "b.csv").write_text(f"{second}\n{uuid}, No, No, 0, 0\n")
    (tmp_path / "apps.csv").write_text("pid, process_name, used_gpu_memory [MiB], gpu_uuid\n")
    assert [one for one in bad(tmp_path) if one[0] == "gpu-memory"] == []
    (tmp_path / "b.csv").write_text(f"{second}\n{uuid}, Yes, No, 0, 0\n")
    assert ("gpu-memory", tmp_path.name, "FAIL") in bad(tmp_path)


def test_several_files_of_which_a_node_may_have_many_stay_one_node(tmp_path: Path) -> None:
    for name in ("eth0.txt", "eth1.txt"):
        (tmp_path / name).write_text(ETHTOOL)
    (tmp_path / "smi.xml").write_text(SMI)
    assert list(recorded.read_folder(tmp_path)) == [tmp_path.name]


def test_what_is_not_recognised_or_cannot_be_read_is_named(folder: Path) -> None:
    (folder / "n1/notes.txt").write_text("call me back\n")
    (folder / "n1/core").write_bytes(b"\x7fELF\x00\x00")
    (folder / "n2/cut.xml").write_text(SMI[:900])
    (folder / "n2/smi.xml").unlink()
    (folder / "n3/link").symlink_to("/etc/hostname")
    findings = [f for f in audit.judge_path(folder, CATALOGUE) if f.check == "file" and f.verdict is Verdict.UNKNOWN]
    texts = {f.subject: f.message for f in findings}
    assert {f.subject for f in findings} == {"n1", "n2", "n3"}
    assert any("not recognised, and not judged: notes.txt" in f.message for f in findings)
    assert any("core: it is binary" in f.message for f in findings)
    assert "cut.xml: nvidia-smi -q -x printed no whole XML" in texts["n2"]
    assert "link: it is a link" in texts["n3"]


def test_a_second_output_of_the_same_gpus_counts_too(folder: Path) -> None:
    row = "GPU-1, NVIDIA H100 80GB HBM3, Yes, No"
    (folder / "n1/q.csv").write_text(f"uuid, name, remapped_rows.pending, remapped_rows.failure\n{row}\n")
    assert ("gpu-memory", "n1", "FAIL") in bad(folder)


def test_a_gpu_that_only_the_second_output_has_stays_unknown_where_it_is(tmp_path: Path) -> None:
    row = "NVIDIA H100 80GB HBM3, Enabled"
    (tmp_path / "smi.xml").write_text(SMI)
    (tmp_path / "q.csv").write_text(f"uuid, name, ecc.mode.current\nGPU-other, {row}\n")
    assert ("gpu-memory", tmp_path.name, "UNKNOWN") in bad(tmp_path)
    uuid = SMI.split("<uuid>")[1].split("<")[0]
    (tmp_path / "q.csv").write_text(f"uuid, name, ecc.mode.current\n{uuid}, {row}\n")
    assert [one for one in bad(tmp_path) if one[0] == "gpu-memory"] == []


def test_gzipped_outputs_are_recognised(tmp_path: Path) -> None:
    (tmp_path / "smi.gz").write_bytes(gzip.compress(SICK.encode()))
    assert recorded.read(tmp_path / "smi.gz").format == "nvidia-smi -q -x"
    assert ("gpu-memory", tmp_path.name, "FAIL") in bad(tmp_path)


def test_a_folder_without_files_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="it has no files"):
        audit.judge_path(tmp_path, CATALOGUE)


PLUGIN = "Nov 27 03:00:02 n1 nvidia-device-plugin[812]: Failed to initialize NVML: Unknown Error\n"
JOURNAL = (
    "Nov 27 03:00:01 n1 kernel: Linux version 6.8.0\n"
    "Nov 27 03:00:02 n1 health.sh[77]: GPU0  X  NV18 CPU Affinity\n"
    "Nov 27 03:00:02 n1 multipathd[9]: No devices were found\n"
    "2026-11-27T03:00:01.1+0000 n1 dcgm[5]: Overall Health: Healthy\n"
)


def verdicts(path: Path) -> list[tuple[str, str]]:
    findings: list[Finding] = audit.judge_path(path, CATALOGUE)
    return [(str(f.verdict), f.message) for f in findings if f.verdict is not Verdict.OK]


@pytest.mark.parametrize("order", [1, -1])
def test_a_line_of_a_daemon_in_a_journal_is_reported_as_its_sentence_alone(tmp_path: Path, order: int) -> None:
    path = tmp_path / "journal.txt"
    path.write_text(JOURNAL)
    assert verdicts(path) == []
    path.write_text("".join([JOURNAL, PLUGIN * 40][::order]))
    assert verdicts(path) == [("WARN", "nvidia-device-plugin logged: Failed to initialize NVML: Unknown Error")]


def test_a_log_with_an_output_and_the_refusal_of_nvidia_smi_is_not_healthy(tmp_path: Path) -> None:
    path = tmp_path / "journal.txt"
    path.write_text(JOURNAL * 200 + "Overall Health: Healthy\n" * 9)
    ((verdict, message),) = verdicts(path)
    assert (verdict, "dcgmi health" in message) == ("UNKNOWN", True)
    path.write_text(JOURNAL + "Failed to initialize NVML: Unknown Error\n")
    assert verdicts(path) == [("FAIL", "nvidia-smi failed: Failed to initialize NVML: Unknown Error")]
