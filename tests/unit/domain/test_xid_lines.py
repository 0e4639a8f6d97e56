"""Kernel logs are read for Xids, SXids and lost GPUs, whatever collected them; nothing else is taken for one."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuctl.domain.xid_lines import KernelLog, XidEvent, address, parse
from tests.rig.recordings import expected, recording

LOST = """\
[ 1843.308145] NVRM: The NVIDIA GPU 0000:b3:00.0
               NVRM: (PCI ID: 10de:26b5) installed in this system has
               NVRM: fallen off the bus and is not responding to commands.
"""
XID_79 = "NVRM: Xid (PCI:0000:b3:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."


def event(line: str) -> XidEvent:
    [only] = parse(line).xids
    return only


def codes(log: KernelLog) -> list[tuple[int, int]]:
    """(code, lines) of the Xids."""
    return [(event.code, event.lines) for event in log.xids]


def table(name: str) -> list[dict[str, str]]:
    head, *rows = recording(name).read_text().splitlines()
    return [dict(zip(head.split("\t"), row.split("\t"), strict=False)) for row in rows]


# ---- recorded lines --------------------------------------------------------------------------------------------------


def test_every_recorded_xid_line_has_its_code_and_address() -> None:
    rows = table("host/xid_lines_nvsentinel.tsv")
    assert len(rows) == 17
    for row in rows:
        events = parse(row["line"]).xids
        if row["xid"] == "-" and "Xid : 32" not in row["line"]:
            assert events == (), row["line"]
            continue
        [only] = events
        assert str(only.code) == (row["xid"] if row["xid"] != "-" else "32")
        assert only.gpu == ("" if row["pci"] == "-" else address(row["pci"]))


def test_recorded_processes_are_read() -> None:
    lines = [row["line"] for row in table("host/xid_lines_nvsentinel.tsv")]
    events = [only for line in lines for only in parse(line).xids]
    assert [(e.code, e.pid, e.process) for e in events if e.pid] == [
        (32, 2280636, "train.3"),
        (69, 1310987, "train.3"),
        (8, 5678, "idle_timeout"),
        (999, 1234, "test"),
        (32, 2280636, None),
    ]
    assert [e.text for e in events if e.code in (46, 8)] == ["", ""]
    assert [(e.code, e.recovery) for e in events if e.code == 154] == [(154, 1), (154, 0), (154, None)]


def test_recorded_nvlink_errors_are_read_with_their_registers() -> None:
    lines = [row["line"] for row in table("host/xid_lines_nvsentinel.tsv")]
    errors = [only.nvlink for line in lines for only in parse(line).xids if only.nvlink]
    assert [(e.unit, e.severity, e.link, e.registers[:2], len(e.registers)) for e in errors] == [
        ("NETIR_LINK_EVT", "Fatal", 9, (0x025525C6, 0), 6),
        ("RLW_REMAP", "Nonfatal", 10, (0x82, 0x40), 6),
        ("RLW_REMAP", "Nonfatal", 10, (0x04, 0x40), 6),
    ]
    [link] = [only.link for line in lines for only in parse(line).xids if only.code == 74]
    assert link == 14


def test_recorded_contained_errors_state_whether_a_reset_is_needed() -> None:
    first, second = (event(row["line"]) for row in table("host/xid_contained_lines.tsv"))
    assert (first.code, first.gpu, first.gpu_instance, first.pid) == (94, "0000:01:00.0", 5, 7194)
    assert (first.reset_needed, first.drain_reset_needed) == (False, False)
    assert (second.code, second.gpu_instance, second.pid) == (95, None, 7062)
    assert (second.reset_needed, second.drain_reset_needed) == (True, False)


def test_recorded_sxids_are_read_and_continuations_are_no_events() -> None:
    log = parse("\n".join(row["line"] for row in table("host/sxid_lines_nvsentinel.tsv")))
    assert [(e.code, e.switch, e.address, e.fatal, e.link) for e in log.sxids] == [
        (28006, 3, "0000:c1:00.0", False, 46),
        (24007, 0, "0000:c3:00.0", True, 28),
        (26006, 0, "0004:00:00.0", None, None),
    ]
    [orphan] = (
        log.unreadable
    )  # only the second line of SXid 12033 is in the log: something happened, of which no more is known
    assert "12033, Severity 1" in orphan


def test_a_recorded_lost_gpu_without_an_xid_is_an_xid_79() -> None:
    only = event(recording("host/gpu_fallen_multiline.log").read_text())
    assert (only.code, only.gpu, only.logged) == (79, "0000:b3:00.0", False)
    assert only.moment is not None
    assert only.moment.seconds == 1843.308145


def test_a_recorded_log_of_gsp_timeouts_has_five() -> None:
    log = parse(recording("host/gpud_dmesg_xid119.log").read_text())
    assert codes(log) == [(119, 1)] * 5
    assert {e.gpu for e in log.xids} == {"0000:9b:00.0"}
    assert [(e.pid, e.process) for e in log.xids[2:]] == [
        (2024380, "nvidia-smi"),
        (1263500, "cache_mgr_main"),
        (1240590, "gpud"),
    ]
    assert log.xids[0].moment is not None
    assert log.xids[0].moment.text == "Feb 23 16:24:18 2025"


def test_recorded_bursts_are_one_event_each() -> None:
    log = parse(recording("host/gpud_dmesg_iso.log").read_text())
    assert log.kernel_lines == 636
    assert sum(e.lines for e in log.xids) == 636
    assert codes(log)[:6] == [(13, 15), (43, 1), (13, 9), (43, 1), (13, 90), (43, 1)]
    assert sum(e.code == 13 for e in log.xids) == 9
    assert [e.pid for e in log.xids if e.code == 43] == [
        2815167, 2823801, 2839444, 2877200, 2886782, 2897677, 2924364,
    ]  # fmt: skip


def test_a_line_quoted_by_a_health_check_is_read() -> None:
    only = event(recording("host/azure_nhc_health_sample.log").read_text())
    assert (only.code, only.gpu, only.pid, only.process) == (119, "0002:00:00.0", 67769, "nvidia-smi")


def test_a_recorded_crash_without_an_xid_has_no_event() -> None:
    log = parse(recording("host/gpud_pstore_dmesg_erst.txt").read_text())
    assert (log.xids, log.sxids, log.unreadable) == ((), (), ())
    assert log.kernel_lines > 30


# ---- forms -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prefix", "clock", "host"),
    [
        ("", None, ""),
        ("[ 1843.308145] ", "boot", ""),
        ("<4>[    3.5] ", "boot", ""),
        ("[ 1843.308145][ T1234] ", "boot", ""),
        ("[Sun Feb 23 16:24:18 2025] ", "local", ""),
        ("kern  :warn  : 2025-01-21T02:21:33,498559+00:00 ", "utc", ""),
        ("Feb 23 16:24:18 gpu-7 kernel: ", "yearless", "gpu-7"),
        ("Feb 23 16:24:18 gpu-7 kernel: [ 1843.308145] ", "yearless", "gpu-7"),
        ("2025-02-23T16:24:18.123456+0100 gpu-7 kernel: ", "utc", "gpu-7"),
        ("Sun 2025-02-23 16:24:18 UTC gpu-7 kernel: ", "local", "gpu-7"),
        ("1740327858.123456 gpu-7 kernel: ", "utc", "gpu-7"),
        ("4,1234,1843308145,-;", "boot", ""),
        ("node-collector-x7 dmesg | 2025-02-23T16:24:18Z ", "utc", ""),
        ("\x1b[32m[ 1843.308145]\x1b[0m ", "boot", ""),
    ],
)
def test_a_line_of_any_collector_is_read(prefix: str, clock: str | None, host: str) -> None:
    only = event(f"{prefix}NVRM: Xid (PCI:0000:66:00): 31, pid=77, name=train.3, Ch 00000008\r\n")
    assert (only.code, only.gpu, only.pid, only.process) == (31, "0000:66:00.0", 77, "train.3")
    assert only.text == "Ch 00000008"
    assert (only.moment.clock if only.moment else None, only.host) == (clock, host)


@pytest.mark.parametrize(
    "record",
    [
        {"log": "[ 12.5] NVRM: Xid (PCI:0000:66:00): 79, GPU lost\n", "time": "2025-02-23T16:24:18.1Z"},
        {
            "MESSAGE": "NVRM: Xid (PCI:0000:66:00): 79, GPU lost",
            "_TRANSPORT": "kernel",
            "_HOSTNAME": "gpu-7",
            "__REALTIME_TIMESTAMP": "1740327858123456",
        },
        {"message": "kernel: NVRM: Xid (PCI:0000:66:00): 79, GPU lost", "level": 3},
    ],
)
def test_a_line_of_json_is_read(record: dict[str, object]) -> None:
    log = parse(json.dumps(record))
    assert [(e.code, e.gpu, e.text) for e in log.xids] == [(79, "0000:66:00.0", "GPU lost")]
    assert log.kernel_lines == 1
    assert log.xids[0].host == record.get("_HOSTNAME", "")


@pytest.mark.parametrize(
    ("where", "gpu", "instances"),
    [
        ("(PCI:0000:01:00)", "0000:01:00.0", (None, None)),
        ("(0000:01:00)", "0000:01:00.0", (None, None)),  # old drivers
        ("(01:00)", "0000:01:00.0", (None, None)),
        ("(PCI:0000:01:00.0)", "0000:01:00.0", (None, None)),
        ("(PCI:0000:AB:0C.1)", "0000:ab:0c.1", (None, None)),
        ("(PCI:00000000:3B:00.0)", "0000:3b:00.0", (None, None)),
        ("(PCI:10000:01:00)", "10000:01:00.0", (None, None)),
        ("(PCI:0000:01:00 GPU-I:05)", "0000:01:00.0", (5, None)),
        ("(PCI:0000:01:00 GPU-I:11 GPU-CI:01)", "0000:01:00.0", (11, 1)),
        ("", "", (None, None)),
    ],
)
def test_the_gpu_has_one_address_and_its_mig_instances(
    where: str, gpu: str, instances: tuple[int | None, int | None]
) -> None:
    only = event(f"NVRM: Xid {where}: 94, pid=7194, Contained: CE. RST: No, D-RST: Yes")
    assert (only.gpu, (only.gpu_instance, only.compute_instance)) == (gpu, instances)
    assert (only.pid, only.reset_needed, only.drain_reset_needed) == (7194, False, True)


@pytest.mark.parametrize(
    ("rest", "pid", "process", "text"),
    [
        ("", None, None, ""),
        (", pid='<unknown>', name=<unknown>, Ch 8", None, None, "Ch 8"),
        (", pid=<unknown>, name=<unknown>, Ch 8", None, None, "Ch 8"),
        (", pid=12, name=python3.11 -m x, Ch 8", 12, "python3.11 -m x", "Ch 8"),
        (", pid=12, name=cuda-EvtHandlr", 12, "cuda-EvtHandlr", ""),
        (", pid=12, Ch 8, intr 3", 12, None, "Ch 8, intr 3"),
        (", Ch 8", None, None, "Ch 8"),
        (" Ch 8", None, None, "Ch 8"),
    ],
)
def test_process_and_text_are_told_apart(rest: str, pid: int | None, process: str | None, text: str) -> None:
    only = event(f"NVRM: Xid (PCI:0000:66:00): 43{rest}")
    assert (only.pid, only.process, only.text) == (pid, process, text)


def test_xid_45_names_its_cause() -> None:
    line = "NVRM: Xid (PCI:0000:66:00): 45, pid=12, name=python, Ch 0000000{}, caused by previous Xid 31"
    assert event(line.format(8)).caused_by == 31
    assert event("NVRM: Xid (PCI:0000:66:00): 45, pid=12, name=python, Ch 00000008").caused_by is None


@pytest.mark.parametrize(
    ("text", "recovery"),
    [
        ("from 0x0 (None) to 0x1 (GPU Reset Required)", 1),
        ("from 0x0 (None) to 0x1 (PF FLR)", 1),  # driver 610
        ("from 0x1 (PF FLR) to 0x2 (OS Reboot)", 2),
        ("from 0x0 (None) to 0x3 (Drain P2P)", 3),
        ("from 0x2 (Node Reboot Required) to 0x0 (None)", 0),
        ("from 0x2 (Node Reboot Required) to", None),
    ],
)
def test_xid_154_has_the_second_number(text: str, recovery: int | None) -> None:
    only = event(f"NVRM: Xid (PCI:0008:01:00): 154, GPU recovery action changed {text}")
    assert only.recovery == recovery


def test_an_nvlink_error_of_no_single_link_has_none() -> None:
    only = event("NVRM: Xid (PCI:0000:01:00): 150, MSE_WATCHDOG Fatal XC0 i0 Link -1 (0x00000000 0x00000000)")
    assert only.nvlink is not None
    assert (only.nvlink.link, only.nvlink.registers) == (None, (0, 0))


@pytest.mark.parametrize(
    "text",
    [
        "The Xid 79 indicates that the GPU has fallen off the bus.",
        "NVRM: GPU at PCI:0000:66:00: GPU-12345678-1234-5678-9abc-def012345678",
        "NVRM: API mismatch: the client has the version 550.54.15",
        "fm: PIDFile= references a path below legacy directory",
        "ixgbe 0000:03:00.0: Adapter removed: fallen off the bus",
    ],
)
def test_text_about_something_else_is_no_event(text: str) -> None:
    log = parse(text)
    assert (log.xids, log.sxids, log.unreadable) == ((), (), ())


@pytest.mark.parametrize("text", ["NVRM: Xid (PCI:0000:66:00", "NVRM: Xid (PCI:0000:66:00): abc", "NVRM: Xid"])
def test_a_cut_line_is_unreadable_and_not_lost(text: str) -> None:
    log = parse(text)
    assert (log.xids, log.unreadable) == ((), (text,))


# ---- lost GPUs -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        LOST,
        LOST + XID_79,
        XID_79 + "\n" + LOST,
        XID_79 + "\nNVRM: GPU 0000:b3:00.0: GPU has fallen off the bus.",
        "NVRM: GPU 0000:b3:00.0: GPU has fallen off the bus.",
        LOST.replace("               NVRM: (PCI ID: 10de:26b5) installed in this system has\n", ""),
        LOST.replace("\n", " "),
        LOST + LOST,
        re.sub(r"^(\[.*\] | +)", "Feb 23 16:24:18 gpu-7 kernel: ", LOST, flags=re.MULTILINE),
    ],
)
def test_a_lost_gpu_counts_once(text: str) -> None:
    only = event(text)
    assert (only.code, only.gpu) == (79, "0000:b3:00.0")


def test_a_lost_gpu_without_an_address_counts() -> None:
    assert event("NVRM: fallen off the bus and is not responding to commands.").gpu == ""


def test_two_lost_gpus_are_two() -> None:
    assert [e.gpu for e in parse(LOST + LOST.replace("b3", "b4")).xids] == ["0000:b3:00.0", "0000:b4:00.0"]


# ---- one fault, one event --------------------------------------------------------------------------------------------


def xid(second: float, code: int = 31, pid: int = 7, gpu: str = "66") -> str:
    return f"[{second:12.6f}] NVRM: Xid (PCI:0000:{gpu}:00): {code}, pid={pid}, name=a, Ch 8\n"


def test_the_same_xid_within_a_second_is_one_event() -> None:
    assert codes(parse(xid(10) + xid(10.4) + xid(11.3))) == [(31, 3)]
    assert codes(parse(xid(10) + xid(11.1))) == [(31, 1), (31, 1)]
    assert codes(parse(xid(10.4) + xid(10) + xid(10.2))) == [(31, 3)]  # lines of several processors change places


def test_another_gpu_process_or_code_is_another_event() -> None:
    assert codes(parse(xid(10) + xid(10, pid=8) + xid(10, gpu="67") + xid(10, code=13))) == [(31, 1)] * 3 + [(13, 1)]


def test_lines_without_times_are_one_event_only_next_to_each_other() -> None:
    line = "NVRM: Xid (PCI:0000:66:00): 13, Ch 8\n"
    assert codes(parse(line * 3)) == [(13, 3)]
    assert codes(parse(line + line.replace("13", "43") + line)) == [(13, 1), (43, 1), (13, 1)]


def test_changes_of_the_recovery_action_are_never_joined() -> None:
    line = "[ 10.0] NVRM: Xid (PCI:0008:01:00): 154, GPU recovery action changed from {} to {}\n"
    log = parse(line.format("0x0 (None)", "0x1 (PF FLR)") + line.format("0x1 (PF FLR)", "0x0 (None)"))
    assert [e.recovery for e in log.xids] == [1, 0]


def test_glued_lines_are_two_events() -> None:
    log = parse(xid(10).strip() + xid(20, code=43))
    assert codes(log) == [(31, 1), (43, 1)]
    assert log.xids[0].text == "Ch 8"
    assert [e.moment.seconds for e in log.xids if e.moment] == [10, 20]


def test_a_switch_event_has_its_links_and_no_continuations() -> None:
    head = "[ 20.0] nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 20034"
    log = parse(
        f"{head}, Fatal, Link 30 LTSSM Fault Up\n{head}, Severity 1 Engine instance 30 Sub-engine instance 00\n"
        f"{head}, Data {{0x50610002, 0x10100030}}\n{head}, Fatal, Link 31 LTSSM Fault Up\n"
        "[ 21.0] nvidia-nvswitch1: SXid (PCI:0000:06:00.0): 10003, Fatal, unhandled interrupt\n"
    )
    assert [(e.code, e.switch, e.link, e.fatal, e.lines) for e in log.sxids] == [
        (20034, 0, 30, True, 1),
        (20034, 0, 31, True, 1),
        (10003, 1, None, True, 1),
    ]
    assert log.sxids[2].text == "unhandled interrupt"
    assert log.unreadable == ()


# ---- boots, drivers --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mark", ["-- Boot 0123456789abcdef0123456789abcdef --\n", "-- Reboot --\n", ""])
def test_boots_are_counted(mark: str) -> None:
    start = "[    0.000000] Linux version 5.15.0-112-generic (buildd@x) #122-Ubuntu\n[    0.000000] Command line: x\n"
    log = parse(mark + start + xid(10) + mark + start + xid(10, code=43))
    assert [e.boot for e in log.xids] == [0, 1]
    assert log.last_boots == {"": 1}


def test_hosts_of_a_central_log_boot_on_their_own() -> None:
    log = parse(
        "Feb 23 16:24:18 a kernel: NVRM: Xid (PCI:0000:66:00): 79, x\n"
        "Feb 23 16:24:18 b kernel: NVRM: Xid (PCI:0000:66:00): 79, x\n"
        "Feb 23 16:30:18 a kernel: Linux version 5.15.0\nFeb 23 16:30:18 a kernel: Command line: x\n"
    )
    assert [(e.host, e.boot) for e in log.xids] == [("a", 0), ("b", 0)]
    assert log.last_boots == {"a": 1, "b": 0}


def test_the_driver_of_an_event_is_the_one_loaded_before() -> None:
    line = "[ 3.1] NVRM: loading NVIDIA UNIX {} Kernel Module{}  {}  Release Build  (dvs-builder@U16)\n"
    assert parse(line.format("x86_64", "", "550.54.15") + xid(5)).xids[0].driver == "550.54.15"
    assert parse(line.format("Open", " for x86_64", "575.57.08") + xid(5)).xids[0].driver == "575.57.08"
    assert parse(xid(5)).xids[0].driver is None


# ---- any text --------------------------------------------------------------------------------------------------------

NAMES = ["host/xid_lines_nvsentinel.tsv", "host/gpu_fallen_multiline.log", "host/sxid_lines_nvsentinel.tsv"]
SEEDS = [LOST, XID_79, xid(1), "nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 20034, Fatal, Link 30 LTSSM Fault Up\n"]
SIGNS = ("Xid", "fallen off the bus")


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_cut_glued_and_reordered_lines_are_read_without_an_error(data: st.DataObject) -> None:
    texts = [recording(name).read_text() for name in NAMES] if expected() else SEEDS
    lines = [line for text in texts for line in text.splitlines()] + ["-- Reboot --", '{"log": "x"}', "{", "\x00"]
    chosen = data.draw(st.lists(st.sampled_from(lines), max_size=8))
    cut = [line[data.draw(st.integers(0, 30)) : data.draw(st.integers(0, len(line)))] for line in chosen]
    text = data.draw(st.sampled_from(["\n", "", " ", "\r\n"])).join(data.draw(st.permutations(cut)))
    log = parse(text)
    signs = sum(text.count(sign) for sign in SIGNS)
    lines_of_events = sum(e.lines for e in log.xids) + sum(e.lines for e in log.sxids)
    assert lines_of_events + len(log.unreadable) <= signs


@settings(max_examples=100, deadline=None)
@given(st.text(alphabet=st.characters(), max_size=200).filter(lambda text: not any(sign in text for sign in SIGNS)))
def test_text_without_a_sign_of_an_error_has_no_event(text: str) -> None:
    log = parse(text + "\nNVRM: " + text)
    assert (log.xids, log.sxids, log.unreadable) == ((), (), ())
