"""The action for a GPU follows NVIDIA's buckets, its workflows and the driver's request; nothing unknown is fine."""

from __future__ import annotations

import pytest

from gpuctl.audit.knowledge import catalogue
from gpuctl.domain.findings import Finding, Verdict
from gpuctl.domain.gpu_errors import Catalogue
from gpuctl.domain.nvlink5 import decode, driver_major
from gpuctl.domain.xid_actions import ACTIONS, findings
from gpuctl.domain.xid_lines import parse
from tests.rig.recordings import recording

GPU = "0000:66:00.0"


@pytest.fixture(scope="module")
def known() -> Catalogue:
    return catalogue()


def line(code: int, text: str = "Ch 8", second: int = 10) -> str:
    return f"[ {second}.000000] NVRM: Xid (PCI:0000:66:00): {code}, {text}\n"


def recovery(before: int, after: int, second: int = 20) -> str:
    return line(154, f"GPU recovery action changed from {before:#x} (x) to {after:#x} (y)", second)


def judged(text: str, known: Catalogue) -> Finding:
    [only] = findings(parse(text), known, "gpu-7")
    return only


# Code -> verdict, first words of the action; read by hand from NVIDIA's page.
PAGE = {
    13: (Verdict.WARN, "restart the job"),
    31: (Verdict.WARN, "restart the job"),
    43: (Verdict.WARN, "watch"),  # ignore, but check the application
    46: (Verdict.FAIL, "drain the GPU and reset it"),
    48: (Verdict.FAIL, "reset the GPU, then read its row remaps"),
    54: (Verdict.FAIL, "check the power connectors"),
    62: (Verdict.FAIL, "drain the GPU and reset it"),
    63: (Verdict.WARN, "read the row remaps"),  # ignore, but the repair waits for a reset
    64: (Verdict.FAIL, "drain the GPU and reset it"),
    74: (Verdict.FAIL, "reset the GPU; compare"),
    78: (Verdict.WARN, "update the driver"),
    79: (Verdict.FAIL, "drain the node and reboot it"),
    92: (Verdict.WARN, "watch"),
    94: (Verdict.WARN, "restart the job"),
    95: (Verdict.FAIL, "drain the GPU and reset it"),
    106: (Verdict.OK, ""),
    109: (Verdict.FAIL, "drain the GPU and reset it"),
    119: (Verdict.FAIL, "drain the GPU and reset it"),
    120: (Verdict.FAIL, "drain the GPU and reset it"),
    125: (Verdict.FAIL, "contact NVIDIA support"),
    136: (Verdict.FAIL, "drain the GPU and reset it"),
    140: (Verdict.FAIL, "drain the GPU and reset it"),
    143: (Verdict.FAIL, "drain the GPU and reset it"),
    151: (Verdict.FAIL, "drain the node and restart the virtual machine"),
    156: (Verdict.FAIL, "drain the GPU and reset it"),
    158: (Verdict.FAIL, "drain the GPU and reset it"),
    159: (Verdict.WARN, "look for errors of unified memory"),
    168: (Verdict.FAIL, "drain the node and reboot it"),  # assumed
    171: (Verdict.FAIL, "reset the GPU, then read its row remaps"),  # assumed
    173: (Verdict.UNKNOWN, "contact NVIDIA support"),
    999: (Verdict.UNKNOWN, "contact NVIDIA support"),
}


@pytest.mark.parametrize("code", PAGE)
def test_a_code_has_the_action_of_its_bucket(code: int, known: Catalogue) -> None:
    finding = judged(line(code), known)
    verdict, action = PAGE[code]
    assert (finding.verdict, finding.hint[: len(action)]) == (verdict, action)
    assert (finding.check, finding.subject) == ("xid", f"gpu-7 GPU {GPU}")
    assert finding.numbers[f"xid_{code}_events"] == 1
    assert finding.source


def test_only_codes_that_nvidia_ignores_twice_need_nothing(known: Catalogue) -> None:
    quiet = [code for code in known.xids if judged(line(code), known).verdict is Verdict.OK]
    assert [code for code in quiet if known.xids[code].immediate != "IGNORE"] == []
    assert {(known.xids[code].investigatory or "").partition(" ")[0] for code in quiet} == {"IGNORE"}


def test_the_most_drastic_action_is_the_one_for_the_gpu(known: Catalogue) -> None:
    finding = judged(line(13) + line(48) + line(79) + line(999), known)
    assert finding.verdict is Verdict.FAIL
    assert finding.hint.startswith("drain the node and reboot it")
    assert finding.message.startswith("Xid 79: ")
    assert finding.message.endswith(" Also Xid 13, 48, 999.")
    assert finding.numbers == {
        "xid_13_events": 1,
        "xid_48_events": 1,
        "xid_79_events": 1,
        "xid_999_events": 1,
        "lines": 4,
        "last_time": "10.000000",
    }


def test_an_unknown_code_hides_no_action(known: Catalogue) -> None:
    finding = judged(line(999) + line(31), known)
    assert finding.verdict is Verdict.UNKNOWN
    assert "contact NVIDIA support" in finding.hint


def test_the_order_of_actions_is_the_drivers() -> None:
    order = list(ACTIONS)
    drivers = ["reboot", "reset", "drain and reset", "drain P2P", "recover IMEX"]
    assert sorted(drivers, key=order.index) == drivers


# ---- workflows -------------------------------------------------------------------------------------------------------


def test_xid_45_alone_asks_for_the_fabric_manager_and_after_another_for_nothing(known: Catalogue) -> None:
    alone = judged(line(45), known)
    assert (alone.verdict, alone.hint) == (Verdict.WARN, ACTIONS["restart fabric manager"].text)
    after = judged(line(119) + line(45), known)
    assert after.message.startswith("Xid 119")
    assert after.hint == ACTIONS["reset"].text
    assert judged(line(106) + line(45), known).verdict is Verdict.OK


def test_xid_45_is_reported_as_its_cause(known: Catalogue) -> None:
    finding = judged(line(45, "pid=3, name=a, Ch 8, caused by previous Xid 95"), known)
    assert (finding.verdict, finding.hint) == (Verdict.FAIL, ACTIONS["reset"].text)
    assert finding.message.startswith("Xid 95 (a, pid 3)")
    assert "reported by Xid 45" in finding.message


def test_a_contained_error_is_a_reset_if_the_line_states_it(known: Catalogue) -> None:
    text = "pid=3, Contained: CE (0x9). RST: {}, D-RST: {}"
    assert judged(line(94, text.format("No", "No")), known).verdict is Verdict.WARN
    assert judged(line(94, text.format("Yes", "No")), known).hint == ACTIONS["reset"].text
    assert judged(line(94, text.format("No", "Yes")), known).hint == ACTIONS["drain and reset"].text
    assert judged(line(95, text.format("No", "Yes")), known).hint == ACTIONS["reset"].text


@pytest.mark.parametrize(
    ("number", "action"),
    list(enumerate(("none", "reset", "reboot", "drain P2P", "drain and reset", "recover IMEX"))),
)
def test_xid_154_asks_by_its_second_number(number: int, action: str, known: Catalogue) -> None:
    finding = judged(recovery(7, number), known)
    assert finding.hint == ACTIONS[action].text
    assert finding.verdict is (Verdict.FAIL if number else Verdict.OK)


def test_a_later_xid_154_replaces_the_earlier_one(known: Catalogue) -> None:
    assert judged(recovery(0, 1) + recovery(1, 0, 30), known).verdict is Verdict.OK
    assert judged(recovery(0, 1) + recovery(1, 2, 30), known).hint == ACTIONS["reboot"].text
    cut = line(154, "GPU recovery action changed from 0x1 (x) to", 40)
    assert judged(recovery(0, 1) + cut, known).verdict is Verdict.FAIL
    assert judged(recovery(1, 0) + cut, known).verdict is Verdict.UNKNOWN
    assert judged(recovery(0, 9), known).verdict is Verdict.UNKNOWN


def test_xid_154_clears_no_other_xid(known: Catalogue) -> None:
    finding = judged(line(79) + recovery(2, 0), known)
    assert (finding.verdict, finding.hint) == (Verdict.FAIL, ACTIONS["reboot"].text)


def test_what_a_reboot_has_cured_is_a_warning(known: Catalogue) -> None:
    boot = "-- Reboot --\n[    0.000000] Linux version 5.15.0\n[    1.000000] something\n"
    finding = judged(line(79) + boot, known)
    assert finding.verdict is Verdict.WARN
    assert "before the last reboot" in finding.message
    assert judged(line(79) + boot + line(79), known).verdict is Verdict.FAIL
    assert judged(line(999) + boot, known).verdict is Verdict.UNKNOWN


def test_unreadable_lines_are_unknown(known: Catalogue) -> None:
    finding = judged("NVRM: Xid (PCI:0000:66:00", known)
    assert (finding.verdict, finding.numbers) == (Verdict.UNKNOWN, {"unreadable_lines": 1})


def test_a_log_without_events_has_no_finding(known: Catalogue) -> None:
    assert findings(parse("[ 1.0] usb 1-1: new device\n"), known) == []


# ---- NVLink 5 --------------------------------------------------------------------------------------------------------

LOAD = "[ 3.1] NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  {}  Release Build\n"
REMAP = "RLW_REMAP {} XC1 i0 Link 10 ({:#010x} {:#010x} 0x00000000 0x00000000 0x00000000 0x00000000)"
V1, V2 = 0x82, 0x04  # RLW_REMAP in the first register, by the version of the driver


@pytest.mark.parametrize(
    ("driver", "intrinfo", "verdict"),
    [
        ("570.148.08", V1, Verdict.FAIL),
        ("570.148.08", V2, Verdict.UNKNOWN),
        ("575.57.08", V1, Verdict.UNKNOWN),
        ("575.57.08", V2, Verdict.FAIL),
        ("", V1, Verdict.FAIL),
        ("", V2, Verdict.FAIL),
    ],
)
def test_the_driver_decides_how_the_unit_is_encoded(
    driver: str, intrinfo: int, verdict: Verdict, known: Catalogue
) -> None:
    text = (LOAD.format(driver) if driver else "") + line(145, REMAP.format("Nonfatal", intrinfo, 0x40))
    finding = judged(text, known)
    assert finding.verdict is verdict
    if verdict is Verdict.FAIL:
        assert finding.hint == ACTIONS["reset"].text
    assert ("driver version unknown" in finding.message) == (driver == "")


def test_of_several_bits_the_worst_counts(known: Catalogue) -> None:
    load = LOAD.format("580.65.06")
    ignored = judged(load + line(145, REMAP.format("Nonfatal", V2, 0x300)), known)
    assert (ignored.verdict, ignored.hint) == (Verdict.OK, "")
    assert judged(load + line(145, REMAP.format("Nonfatal", V2, 0x340)), known).hint == ACTIONS["reset"].text
    unknown = judged(load + line(145, REMAP.format("Nonfatal", V2, 0x1100)), known)
    assert unknown.verdict is Verdict.UNKNOWN
    assert "bits 0x1000" in unknown.message


def test_values_that_are_no_bits_are_compared_whole(known: Catalogue) -> None:
    mfde = "NETIR_MFDE_EVENT Nonfatal XC0 i0 Link 03 (0x00000014 {:#010x} 0x0 0x0 0x0 0x0)"
    load = LOAD.format("580.65.06")
    assert judged(load + line(149, mfde.format(3)), known).verdict is Verdict.OK
    assert judged(load + line(149, mfde.format(1)), known).hint == ACTIONS["reset"].text


def test_an_error_that_xid_154_decides_follows_it(known: Catalogue) -> None:
    load, error = LOAD.format("580.65.06"), line(145, REMAP.format("Nonfatal", V2, 0x4))
    assert judged(load + error, known).verdict is Verdict.WARN
    assert "the log has none" in judged(load + error, known).message
    assert judged(load + error + recovery(0, 1), known).hint == ACTIONS["reset"].text


def test_a_fatal_error_without_a_rule_is_a_failure(known: Catalogue) -> None:
    finding = judged(LOAD.format("580.65.06") + line(145, REMAP.format("Fatal", V2, 0x1000)), known)
    assert finding.verdict is Verdict.FAIL
    assert judged(line(147, "TREX Fatal XC0 i0 Link 01"), known).verdict is Verdict.FAIL
    assert judged(line(147, "cut"), known).verdict is Verdict.UNKNOWN


def test_a_unit_with_a_second_action_is_reset_if_the_line_is_fatal(known: Catalogue) -> None:
    pipe = "RLW_RXPIPE {} XC0 i0 Link 01 (0x00000006 0x00000001 0x0 0x0 0x0 0x0)"
    load = LOAD.format("580.65.06")
    assert judged(load + line(145, pipe.format("Nonfatal")), known).verdict is Verdict.WARN
    assert judged(load + line(145, pipe.format("Fatal")), known).hint == ACTIONS["reset"].text


def test_the_recorded_nvlink_error_is_a_link_that_a_peer_took_down(known: Catalogue) -> None:
    first = recording("host/xid_lines_nvsentinel.tsv").read_text().splitlines()[1].split("\t")[0]
    finding = judged(LOAD.format("570.148.08") + first, known)
    assert finding.verdict is Verdict.FAIL
    assert "INVESTIGATE_PEER_DEVICE" in finding.message


def test_a_line_without_registers_has_no_rule(known: Catalogue) -> None:
    assert decode(145, (0x82,), None, known.nvlink_rules).rules == ()
    assert [driver_major(text) for text in ("570.148.08", "", None, "x")] == [570, None, None, None]


# ---- switches --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "verdict", "action"),
    [
        ("20034, Fatal, Link 30 LTSSM Fault Up", Verdict.FAIL, "drain the node, reset its GPUs"),
        ("10003, Fatal, unhandled interrupt", Verdict.FAIL, "drain the node and reboot it"),
        ("12028, Non-fatal, Link 32 egress non-posted PRIV error (First)", Verdict.FAIL, "drain the node, reset"),
        ("11012, Non-fatal, Link 3 ECC limit", Verdict.WARN, "nothing now"),
        ("11012, Fatal, Link 3 ECC limit", Verdict.FAIL, "drain the node, reset"),
        ("10004, Non-fatal, thermal", Verdict.WARN, "watch"),
        ("22013, Non-fatal, Link 3 minion", Verdict.OK, ""),
        ("26006, SOE HALTED", Verdict.UNKNOWN, "contact NVIDIA support"),
        ("28006, Non-fatal, Link 46 MC TS crumbstore MCTO (First)", Verdict.UNKNOWN, "contact NVIDIA support"),
        ("28006, Fatal, Link 46 MC TS crumbstore MCTO (First)", Verdict.FAIL, "drain the node, reset"),
    ],
)
def test_an_sxid_has_the_verdict_of_its_class_or_line(
    text: str, verdict: Verdict, action: str, known: Catalogue
) -> None:
    finding = judged(f"[ 10.5] nvidia-nvswitch2: SXid (PCI:0000:07:00.0): {text}", known)
    assert (finding.check, finding.subject) == ("sxid", "gpu-7 NVSwitch 2")
    assert (finding.verdict, finding.hint[: len(action)]) == (verdict, action)


def test_a_switch_has_one_finding_with_its_links(known: Catalogue) -> None:
    head = "[ 10.5] nvidia-nvswitch2: SXid (PCI:0000:07:00.0): "
    text = f"{head}20034, Fatal, Link 30 x\n{head}20034, Fatal, Link 31 x\n{head}20001, Non-fatal, Link 4 x\n"
    finding = judged(text, known)
    assert finding.message.startswith("SXid 20034 on link 30, 31: ")
    assert finding.message.endswith("Also SXid 20001.")
    assert finding.numbers == {"sxid_20001_events": 1, "sxid_20034_events": 2}
