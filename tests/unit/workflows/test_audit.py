"""The audit as a whole: node types apart, the worst first, whoever is disturbed named, files recognised."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpuctl.audit import knowledge
from gpuctl.core.errors import InvalidInput
from gpuctl.domain.findings import Finding, Verdict
from gpuctl.nccl.preflight import facts_file
from gpuctl.nccl.preflight.facts_file import Fleet
from gpuctl.workflows import audit, audit_rules
from tests.rig.healthy_nodes import LINE, Facts, fleet
from tests.rig.recordings import recording

CATALOGUE = knowledge.catalogue()
XID_79 = LINE.format("NVRM: Xid (PCI:0000:18:00): 79, pid=7, name=python, GPU has fallen off the bus.")


def judge(nodes: dict[str, Facts], **unasked: str) -> list[Finding]:
    return audit_rules.judge(Fleet(nodes, unasked), CATALOGUE)


def bad(nodes: dict[str, Facts], **unasked: str) -> list[tuple[str, str, Verdict]]:
    return [(f.check, f.subject, f.verdict) for f in judge(nodes, **unasked) if f.verdict is not Verdict.OK]


def messages(facts: Facts, *lines: str, boot: int = 0) -> None:
    facts["kernel_log"]["boots"][-boot]["lines"] = list(lines)


def test_a_healthy_fleet_is_ok() -> None:
    assert bad(fleet()) == []


def test_a_node_that_was_not_reached_is_unknown_and_comes_first() -> None:
    judged = judge(fleet(), n9="connection refused")
    assert (judged[0].subject, judged[0].verdict) == ("n9", Verdict.UNKNOWN)
    assert "connection refused" in judged[0].message


def test_node_types_are_not_compared_with_each_other() -> None:
    nodes = fleet(6)
    for name in ("n5", "n6"):
        facts = nodes[name]
        facts["gpu"].update(gpus=facts["gpu"]["gpus"][:1], attached=1, on_bus=1, driver="550.54.15", module="550.54.15")
        facts["gpu"]["fabric_manager"] = "550.54.15"
        facts["gpu"]["gpus"][0]["model"] = "NVIDIA A10G"
        facts["nvlink"] = {"gpus": [{"gpu": 0, "links": None, "errors": None}], "unread": {}}
        facts["rdma"]["ports"] = facts["rdma"]["ports"][:1]
        facts["system"]["memory"].update(total_mib=128000, available_mib=100000)
    assert bad(nodes) == []
    nodes["n6"]["gpu"]["gpus"][0]["persistence"] = "Disabled"
    judged = judge(nodes)
    assert [(f.check, f.subject) for f in judged if f.verdict is not Verdict.OK] == [("persistence", "n6")]
    assert not [f for f in judged if f.check == "persistence" and f.verdict is Verdict.OK]


def test_a_node_whose_gpus_do_not_answer_is_judged_with_the_largest_group() -> None:
    nodes = fleet(3)
    nodes["n2"]["gpu"] = {"unread": {"*": "nvidia-smi gave no answer within 60 s"}}
    assert {subject for _, subject, _ in bad(nodes)} == {"n2"}


# ---- kernel messages -------------------------------------------------------------------------------------------------


def test_an_xid_is_a_finding_of_its_gpu_with_nvidias_action() -> None:
    nodes = fleet()
    messages(nodes["n3"], XID_79)
    (finding,) = [f for f in judge(nodes) if f.verdict is Verdict.FAIL]
    assert (finding.check, finding.subject) == ("xid", "n3 GPU 0000:18:00.0")
    assert "drain the node and reboot it" in finding.hint


def test_an_xid_of_the_boot_before_that_a_reboot_cures_is_a_warning() -> None:
    nodes = fleet()
    messages(nodes["n3"], XID_79, boot=-1)
    assert bad(nodes) == [("xid", "n3 GPU 0000:18:00.0", Verdict.WARN)]


@pytest.mark.parametrize(
    ("text", "check", "verdict"),
    [
        ("infiniband rdmap16s27: Admin queue is closed", "efa", Verdict.FAIL),
        ("mlx5_core 0000:1a:00.0 ens1: Link down", "network", Verdict.WARN),
        ("python[7]: segfault at 8 ip 0 sp 0 error 4 in libnccl.so.2.27.7[7f]", "crash", Verdict.WARN),
        ("EDAC MC0: 1 UE memory read error on CPU_SrcID#0", "memory", Verdict.FAIL),
        ("pcieport 0000:15:01.0: PCIe Bus Error: severity=Uncorrected (Fatal)", "pcie", Verdict.FAIL),
        ("pcieport 0000:15:01.0: PCIe Bus Error: severity=Corrected, type=Physical Layer", "pcie", Verdict.WARN),
        ("watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [python:7]", "kernel", Verdict.FAIL),
        ("INFO: task python:7 blocked for more than 120 seconds.", "kernel", Verdict.WARN),
        ("Out of memory: Killed process 7 (python)", "out-of-memory", Verdict.WARN),
        ("EXT4-fs (sda1): Remounting filesystem read-only", "disk", Verdict.FAIL),
        ("LustreError: 11-0: fsx-OST0001: operation ost_write failed", "file-system", Verdict.WARN),
    ],
)
def test_other_faults_of_the_kernel(text: str, check: str, verdict: Verdict) -> None:
    nodes = fleet()
    messages(nodes["n1"], LINE.format(text), LINE.format(text))
    (finding,) = [f for f in judge(nodes) if f.verdict is not Verdict.OK]
    assert (finding.check, finding.subject, finding.verdict) == (check, "n1", verdict)
    assert "2 lines" in finding.message


def test_a_fault_before_the_last_reboot_is_never_worse_than_a_warning() -> None:
    nodes = fleet()
    messages(nodes["n1"], LINE.format("EDAC MC0: 1 UE memory read error"), boot=-1)
    (finding,) = [f for f in judge(nodes) if f.verdict is not Verdict.OK]
    assert (finding.verdict, "before the last reboot" in finding.message) == (Verdict.WARN, True)


def test_messages_that_could_not_be_read_are_unknown_and_an_unread_boot_before_is_said() -> None:
    nodes = fleet()
    nodes["n1"]["kernel_log"] = {"boots": None, "unread": {"boot 0": "Operation not permitted"}}
    nodes["n2"]["kernel_log"]["boots"].pop()
    nodes["n2"]["kernel_log"]["unread"] = {"boot -1": "No such boot ID"}
    assert bad(nodes) == [("kernel-log", "n1", Verdict.UNKNOWN)]
    (second,) = [f for f in judge(nodes) if (f.check, f.subject) == ("kernel-log", "n2")]
    assert "No such boot ID" in second.message


def test_messages_that_did_not_fit_are_a_warning() -> None:
    nodes = fleet()
    nodes["n1"]["kernel_log"]["boots"][0]["dropped"] = 12
    assert bad(nodes) == [("kernel-log", "n1", Verdict.WARN)]


def test_efas_own_lines_are_told_from_those_of_other_adapters() -> None:
    rows = recording("host/efa_kernel_lines.tsv").read_text().splitlines()[1:]
    wanted, found = [], []
    for row in rows:
        line, _, action = row.split("\t")
        nodes = fleet(1)
        messages(nodes["n1"], line)
        wanted.append(action == "replace VM")
        found.append(("efa", "n1", Verdict.FAIL) in bad(nodes))
    assert found == wanted
    assert sum(wanted) >= 4


# ---- who is disturbed ------------------------------------------------------------------------------------------------


def test_whoever_uses_a_node_that_needs_a_reset_is_named() -> None:
    nodes = fleet()
    gpu = nodes["n2"]["gpu"]["gpus"][0]
    gpu["processes"] = [{"pid": 4711, "name": "python", "used_mib": 70000}]
    assert bad(nodes) == []
    gpu["remap_pending"] = True
    (use,) = [f for f in judge(nodes) if f.check == "in-use"]
    assert (use.subject, use.verdict) == ("n2", Verdict.WARN)
    assert "python (4711)" in use.message


# ---- files -----------------------------------------------------------------------------------------------------------


def test_saved_facts_are_judged_as_they_were(tmp_path: Path) -> None:
    path, nodes = tmp_path / "facts.json", fleet()
    nodes["n2"]["gpu"]["gpus"][0]["compute_mode"] = "Prohibited"
    facts_file.save(path, Fleet(nodes, {"n9": "refused"}))
    assert audit.judge_path(path, CATALOGUE) == judge(nodes, n9="refused")


def test_saved_facts_lose_secrets_and_nothing_else() -> None:
    nodes = fleet(1)
    messages(nodes["n1"], LINE.format("app[9]: --password hunter22 failed"), XID_79)
    nodes["n1"]["gpu"]["gpus"][0]["processes"] = [
        {"pid": 7, "name": "sh -c token=abcdefgh12", "used_mib": 1, "type": "C"}
    ]
    nodes["n2"] = {"gpu": {"unread": {"*": "no answer"}}}
    saved = audit.without_secrets(Fleet(nodes))
    assert "hunter22" not in str(saved.nodes)
    assert "abcdefgh12" not in str(saved.nodes)
    assert XID_79 in saved.nodes["n1"]["kernel_log"]["boots"][0]["lines"]
    assert saved.nodes["n1"]["storage"] == nodes["n1"]["storage"]
    assert saved.nodes["n2"] == nodes["n2"]


def test_facts_of_another_command_and_edited_ones_are_refused(tmp_path: Path) -> None:
    path, nodes = tmp_path / "facts.json", fleet()
    del nodes["n1"]["pcie"]
    facts_file.save(path, Fleet(nodes))
    with pytest.raises(InvalidInput, match=r"nodes\.n1\.pcie is missing"):
        audit.judge_path(path, CATALOGUE)
    broken: dict[str, Any] = fleet()
    broken["n1"]["pcie"]["links"][0]["address"] = 3
    broken["n3"]["gpu"]["gpus"][2]["model"] = 7
    facts_file.save(path, Fleet(broken))
    with pytest.raises(InvalidInput, match=r"facts\.json: nodes\.n1\.pcie\.links\[0\]\.address is 3") as error:
        audit.judge_path(path, CATALOGUE)
    assert "nodes.n3.gpu.gpus[2].model is 7, not a text" in str(error.value)
    assert "gpuctl audit --save FILE" in error.value.hint


def test_the_xml_of_nvidia_smi_is_judged(tmp_path: Path) -> None:
    text = recording("nvidia-smi/x_h100_8g_driver570.xml").read_text()
    path = tmp_path / "n1.xml"
    path.write_text(text.replace("<remapped_row_pending>No", "<remapped_row_pending>Yes", 1))
    judged = [f for f in audit.judge_path(path, CATALOGUE) if f.verdict is not Verdict.OK]
    assert [(f.check, f.subject, f.verdict) for f in judged] == [
        ("gpu-memory", "n1.xml", Verdict.FAIL),
        ("persistence", "n1.xml", Verdict.WARN),
    ]
    path.write_text(text[: len(text) // 2])
    with pytest.raises(InvalidInput, match="no whole XML"):
        audit.judge_path(path, CATALOGUE)
