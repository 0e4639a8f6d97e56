"""Rules of the audit: each fault is found on its node alone, and what could not be read is never OK."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gpuctl.audit import rules
from gpuctl.audit.rules import links
from gpuctl.domain.findings import Finding, Verdict
from tests.rig.healthy_nodes import Facts, fleet, rise

SICK = "n2"
Change = Callable[[Facts], Any]


def findings(change: Change = lambda _: None) -> list[Finding]:
    nodes = fleet()
    change(nodes[SICK])
    return [finding for rule in rules.RULES for finding in rule(nodes)]


def bad(change: Change) -> list[Finding]:
    return [finding for finding in findings(change) if finding.verdict is not Verdict.OK]


def put(*path: str | int) -> Callable[[Any], Change]:
    """Change that sets the value at a path of the facts."""

    def setting(value: Any) -> Change:
        def change(facts: Facts) -> None:
            inner: Any = facts
            for part in path[:-1]:
                inner = inner[part]
            inner[path[-1]] = value

        return change

    return setting


def with_memory_limit(facts: Facts) -> list[Any]:
    """GPUs whose driver states a limit for the temperature of their memory."""
    gpus: list[Any] = facts["gpu"]["gpus"]
    for gpu in gpus:
        gpu["memory_limit_c"] = 95
    return gpus


GPU = ("gpu", "gpus", 3)
LINK = ("pcie", "links")
PORT = ("counters", "ports", "mlx5_0:1")
FAULTS: dict[str, tuple[Change, str, Verdict, str]] = {
    "persistence": (
        put(*GPU, "persistence")("Disabled"), "persistence", Verdict.WARN, "GPU 3: persistence mode is off",
    ),
    "prohibited": (put(*GPU, "compute_mode")("Prohibited"), "compute-mode", Verdict.FAIL, "nothing can run on it"),
    "exclusive": (put(*GPU, "compute_mode")("Exclusive_Process"), "compute-mode", Verdict.WARN, "only one process"),
    "sram": (put(*GPU, "sram_threshold")(True), "sram", Verdict.FAIL, "exceed the threshold"),
    "hot": (put(*GPU, "margin_c")(0), "temperature", Verdict.FAIL, "0 C below where it slows down"),
    "warm": (put(*GPU, "margin_c")(4), "temperature", Verdict.WARN, "4 C below where it slows down"),
    "hot memory": (
        lambda facts: with_memory_limit(facts)[3].update(memory_c=95), "memory-temperature", Verdict.WARN,
        "GPU 3: its memory is at 95 C; software slowdown begins at 95 C",
    ),
    "slow link at work": (
        lambda facts: facts["gpu"]["gpus"][3].update(pcie_gen=1, busy_percent=97), "pcie-speed",
        Verdict.WARN, "GPU 3: 97 % busy in state P0, and its PCIe link runs at generation 1 of 4",
    ),
    "capped": (put(*GPU, "power_limit_w")(500), "power-limit", Verdict.WARN, "power limit 500 W, by default 700 W"),
    "nvlink off": (put("nvlink", "gpus", 5, "links", "7")(0.0), "nvlink", Verdict.FAIL, "GPU 5: NVLink 7 inactive"),
    "slow nvlink": (
        put("nvlink", "gpus", 5, "links", "7")(12.5), "nvlink", Verdict.FAIL, "GPU 5: NVLink 7 at 12.5 GB/s",
    ),
    "no nvlink": (put("nvlink", "gpus", 5, "links")({}), "nvlink", Verdict.FAIL, "none of its NVLinks is active"),
    "replays": (
        put("nvlink", "gpus", 0, "errors", "Replay Errors")(4), "nvlink", Verdict.WARN, "GPU 0: 4 replay errors since",
    ),
    "crc": (put("nvlink", "gpus", 0, "errors", "CRC Errors")(9), "nvlink", Verdict.WARN, "GPU 0: 9 CRC errors since"),
    "narrow": (put(*LINK, 0, "width")(8.0), "pcie", Verdict.FAIL, "GPU 0000:18:00.0 has 8 PCIe lanes of 16"),
    "slow adapter": (
        put(*LINK, 1, "speed")(16.0), "pcie", Verdict.FAIL, "adapter 0000:1a:00.0 runs its PCIe link at 16 GT/s of 32",
    ),
    "aer": (put(*LINK, 0, "errors", "nonfatal")(2), "pcie", Verdict.WARN, "2 nonfatal PCIe errors since boot"),
    "symbols": (put(*PORT, "symbol_error")(rise(3, 8)), "counters", Verdict.WARN, "mlx5_0:1: symbol_error +5 within"),
    "flap": (put(*PORT, "link_downed")(rise(1, 2)), "counters", Verdict.FAIL, "its link went down within 2 s"),
    "allowance": (
        put("counters", "links", "ens5", "bw_in_allowance_exceeded")(rise(7, 9)), "counters", Verdict.WARN,
        "ens5: beyond the instance's allowance of bw_in within 2 s",
    ),
    "full": (put("system", "disks", 0, "free_percent")(0.4), "disks", Verdict.FAIL, "/: 0.4 % of its space is free"),
    "inodes": (put("system", "disks", 0, "free_inodes_percent")(3.0), "disks", Verdict.WARN, "3 % of its inodes"),
    "read only": (put("system", "disks", 0, "read_only")(True), "disks", Verdict.WARN, "/ can only be read"),
    "no memory": (put("system", "memory", "available_mib")(9000), "memory", Verdict.FAIL, "0.4 % of its memory"),
    "module": (put("system", "memory", "total_mib")(1930000), "memory", Verdict.WARN, "of 4 nodes have"),
    "corrupted": (put("system", "memory", "corrupted_mib")(4), "memory", Verdict.FAIL, "4 MiB of damaged memory"),
    "uncorrected": (put("system", "edac", "uncorrected")(1), "memory", Verdict.FAIL, "1 uncorrectable error of"),
    "corrected": (put("system", "edac", "corrected")(7), "memory", Verdict.WARN, "7 corrected errors of its memory"),
    "clock": (put("system", "clock", "synchronised")(False), "clock", Verdict.WARN, "nothing synchronises its clock"),
    "stuck": (
        put("system", "stuck")({"count": 1, "processes": [{"pid": 7, "name": "dd"}]}), "processes", Verdict.WARN,
        "1 in uninterruptible sleep (state D): dd (7)",
    ),
    "zombies": (put("system", "zombies")(150), "processes", Verdict.WARN, "150 zombie processes"),
    "kubelet unit": (
        put("system", "failed_units")(["kubelet.service"]), "services", Verdict.FAIL, "kubelet.service has failed",
    ),
    "dcgm": (put("system", "failed_units")(["nvidia-dcgm.service"]), "services", Verdict.WARN, "has failed"),
    "kubelet": (
        put("system", "kubelet")({"runs": True, "healthy": False, "gpu_plugin": True}), "services", Verdict.FAIL,
        "not healthy",
    ),
    "plugin": (
        put("system", "kubelet")({"runs": True, "healthy": True, "gpu_plugin": False}), "services", Verdict.WARN,
        "no device plugin of NVIDIA",
    ),
}  # fmt: skip


def test_healthy_nodes_are_ok_in_every_check() -> None:
    judged = findings()
    assert {finding.verdict for finding in judged} == {Verdict.OK}
    assert len({finding.check for finding in judged}) == len(rules.RULES)
    assert all(finding.message for finding in judged)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found_on_its_node_alone(fault: str) -> None:
    change, check, verdict, message = FAULTS[fault]
    (finding,) = bad(change)
    assert (finding.check, finding.subject, finding.verdict) == (check, SICK, verdict)
    assert message in finding.message
    assert finding.hint


@pytest.mark.parametrize("subject", ["gpu", "nvlink", "pcie", "counters", "system"])
def test_a_subject_that_could_not_be_read_is_unknown_with_its_reason(subject: str) -> None:
    def lose(facts: Facts) -> None:
        facts[subject] = {"unread": {"*": "not on this host"}}

    judged = bad(lose)
    assert judged
    assert {(finding.subject, finding.verdict) for finding in judged} == {(SICK, Verdict.UNKNOWN)}
    assert all("not on this host" in finding.message for finding in judged)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (put(*GPU, "unread")({"temperature_c": "Unknown Error"}), "GPU 3: temperature is unknown: Unknown Error"),
        (put(*GPU, "persistence")(None), "GPU 3: persistence mode is unknown: nvidia-smi does not report it"),
        (put("nvlink", "unread")({"GPU 2 errors": "Timeout"}), "GPU 2: its NVLink errors are unknown: Timeout"),
        (put(*LINK, 0, "width")(None), "GPU 0000:18:00.0: the width of its link is unknown"),
        (put("counters", "unread")({"mlx5_0:1 rx": "I/O error"}), "mlx5_0:1 rx is unknown: I/O error"),
    ],
)
def test_a_value_that_could_not_be_read_is_unknown(change: Change, message: str) -> None:
    (finding,) = bad(change)
    assert (finding.verdict, finding.subject) == (Verdict.UNKNOWN, SICK)
    assert message in finding.message


def test_gpus_of_a_node_with_the_same_issue_share_a_finding() -> None:
    def change(facts: Facts) -> None:
        for gpu in facts["gpu"]["gpus"][2:]:
            gpu["persistence"] = "Disabled"

    (finding,) = bad(change)
    assert finding.message.startswith("GPU 2, 3, 4, 5, 6, 7: persistence mode is off")


def test_values_that_no_gpu_has_are_not_judged_and_said_so() -> None:
    nodes = fleet()
    for facts in nodes.values():
        for gpu in facts["gpu"]["gpus"]:
            gpu.update(sram_threshold=None, power_limit_w=None)
    judged = [finding for rule in rules.OF_GPUS for finding in rule(nodes)]
    unjudged = {f.check: f.message for f in judged if "not judged" in f.message}
    assert {check: unjudged[check] for check in ("sram", "power-limit")} == {
        "sram": "not judged: no GPU reports its threshold of SRAM errors",
        "power-limit": "not judged: no GPU reports its power limit",
    }


def test_idle_links_and_memory_without_a_limit_are_not_judged_and_said_so() -> None:
    def change(facts: Facts) -> None:
        for gpu in facts["gpu"]["gpus"]:
            gpu.update(pcie_gen=1, memory_c=99)

    messages = {finding.check: finding.message for finding in findings(change)}
    assert bad(change) == []
    assert "not judged: not known to be at work" in messages["pcie-speed"]
    assert "not judged: the driver states no limit" in messages["memory-temperature"]


@pytest.mark.parametrize("state", ["P5", "P8", None])
def test_a_link_is_not_judged_in_a_state_that_lowers_its_speed(state: str | None) -> None:
    def change(facts: Facts) -> None:
        facts["gpu"]["gpus"][3].update(pcie_gen=1, busy_percent=97, performance_state=state)

    assert bad(change) == []


def test_memory_just_below_its_limit_is_no_fault() -> None:
    assert bad(lambda facts: with_memory_limit(facts)[3].update(memory_c=94)) == []


def test_one_gpu_at_work_says_nothing_of_the_links_of_the_others() -> None:
    nodes = fleet()
    nodes[SICK]["gpu"]["gpus"][3].update(busy_percent=97)
    (finding,) = rules.gpus.pcie_speed({SICK: nodes[SICK]})
    assert finding.verdict is Verdict.OK
    assert "not judged: 7 of 8 GPUs: not known to be at work" in finding.message


@pytest.mark.parametrize(
    ("unread", "message"),
    [
        ({"margin_c": "?"}, "GPU 3: temperature is unknown: its limit is ?"),
        ({"memory_c": "?"}, "GPU 3: memory temperature is unknown: ?"),
        ({"pcie_gen": "?"}, "GPU 3: PCIe generation is unknown: ?"),
        ({"busy_percent": "?"}, "GPU 3: PCIe generation is unknown: its utilization is ?"),
        ({"performance_state": "?"}, "GPU 3: PCIe generation is unknown: its performance state is ?"),
        ({"default_power_limit_w": "?"}, "GPU 3: power limit is unknown: its limit is ?"),
    ],
)
def test_a_value_or_a_limit_that_cannot_be_read_is_unknown(unread: dict[str, str], message: str) -> None:
    def change(facts: Facts) -> None:
        facts["gpu"]["gpus"][3].update({**dict.fromkeys(unread), "unread": unread})

    assert [(finding.verdict, finding.message) for finding in bad(change)] == [(Verdict.UNKNOWN, message)]


def test_a_limit_that_only_the_gpus_beside_it_report_is_unknown() -> None:
    (finding,) = bad(put(*GPU, "default_power_limit_w")(None))
    assert "reports its limit of the GPUs beside it, and not of this one" in finding.message


def test_another_power_limit_than_most_is_named_where_all_have_their_default() -> None:
    def change(facts: Facts) -> None:
        for gpu in facts["gpu"]["gpus"]:
            gpu.update(power_limit_w=650, default_power_limit_w=650)

    (finding,) = bad(change)
    assert (finding.subject, finding.message) == (SICK, "power limit 650 W, 3 of 4 nodes have power limit 700 W")


def test_a_link_is_not_wider_than_the_port_at_its_other_end() -> None:
    def change(facts: Facts) -> None:
        facts["pcie"]["links"][0].update(width=8.0, port_width=8.0)

    assert bad(change) == []


def test_counters_of_traffic_may_rise() -> None:
    def change(facts: Facts) -> None:
        facts["counters"]["ports"]["mlx5_0:1"]["port_rcv_data"] = rise(1, 10**12)

    assert bad(change) == []


def test_nodes_without_nvlinks_are_not_ok_for_having_all_active() -> None:
    nodes = fleet()
    for facts in nodes.values():
        facts["nvlink"] = {"gpus": [{"gpu": 0, "links": None, "errors": None}], "unread": {}}
    assert [finding.message for finding in links.nvlink(nodes)] == [
        "not judged: no GPU shows NVLinks, as those without any and those under MIG do not"
    ]
