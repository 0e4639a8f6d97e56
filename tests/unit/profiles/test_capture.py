"""A profile captured from a host: it loads, and lists the knobs that it leaves out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.api import visit
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.host import Host
from ansible_collections.gpuctl.fleet.plugins.plugin_utils import profiles

from tests.rig.trees.host import put, small_server


def reading(knob: str, now: str | None, state: str = "ok", reason: str = "") -> dict[str, Any]:
    return {"knob": knob, "now": now, "state": state, "reason": reason}


def loaded(tmp_path: Path, *readings: dict[str, Any]) -> dict[str, str]:
    """The values of the captured profile, loaded again."""
    path = tmp_path / "good.yml"
    path.write_text(profiles.captured(readings, "gpu-1", "2026-01-31"))
    return {name: row.value for name, row in profiles.load(path, []).rows.items()}


def test_values_of_the_host_become_a_profile_that_loads(tmp_path: Path) -> None:
    rows = loaded(
        tmp_path,
        reading("sysctl.vm.swappiness", "1", "differs"),
        reading("sysctl.net.ipv4.tcp_rmem", "4096 131072 6291456"),
        reading("thp.enabled", "madvise"),
        reading("sysctl.net.ipv4.conf.all.arp_ignore", "1"),
    )
    assert rows == {
        "sysctl.vm.swappiness": "1",
        "sysctl.net.ipv4.tcp_rmem": "4096 131072 6291456",
        "thp.enabled": "madvise",
        "sysctl.net.ipv4.conf.all.arp_ignore": "1",
    }


def test_rows_say_where_they_come_from(tmp_path: Path) -> None:
    loaded(tmp_path, reading("thp.enabled", "madvise"))
    captured_row = profiles.load(tmp_path / "good.yml").rows["thp.enabled"]
    assert (captured_row.why, captured_row.source) == ("as captured from gpu-1 on 2026-01-31", "captured")
    assert captured_row.read_back == "cat /sys/kernel/mm/transparent_hugepage/enabled"


def test_a_value_that_all_cpus_share_is_taken_and_a_mixed_one_is_not(tmp_path: Path) -> None:
    shared = reading("cpu.governor", "performance (64 CPUs)"), reading("cpu.idle_latency_us", "10 C1E (64 CPUs)")
    assert loaded(tmp_path, *shared) == {"cpu.governor": "performance", "cpu.idle_latency_us": "10"}
    mixed = reading("cpu.governor", "performance on 63, powersave on 1 of 64", "differs")
    assert loaded(tmp_path, mixed) == {}
    left_out = "#   cpu.governor: is performance on 63, powersave on 1 of 64, which no profile can set"
    assert left_out in (tmp_path / "good.yml").read_text().splitlines()


def test_unsupported_and_unknown_values_are_left_out_with_the_reason(tmp_path: Path) -> None:
    readings = [
        reading("sysctl.vm.dirty_bytes", "0", "differs"),
        reading("cpu.boost", None, "unsupported", "no switch for boost\non this machine"),
        reading("irq.affinity", None, "unknown", "numa_node -1"),
        reading("program.gpuctl-exec", "absent", "differs"),
        reading("cmdline.iommu", "absent", "differs"),
        reading("swap.off", None, "differs"),
        {**reading("file./etc/x", "a"), "restores": True},
    ]
    assert loaded(tmp_path, *readings) == {}
    text = (tmp_path / "good.yml").read_text()
    assert text.startswith("# What gpu-1 ran with on 2026-01-31, written by `gpuctl profile capture`.\n# Left out:\n")
    assert "#   sysctl.vm.dirty_bytes: is 0, which no profile can set\n" in text
    assert "#   cpu.boost: no switch for boost on this machine\n" in text
    assert "#   cmdline.iommu: is absent, which no profile can set\n" in text
    assert "#   swap.off: cannot be read while the host runs\n" in text
    assert "/etc/x" not in text


def test_capture_reads_every_knob_of_every_shipped_profile() -> None:
    questions = profiles.questions()
    for file in profiles.names([]):
        profile = profiles.load(file.path)
        assert profile.rows.keys() <= questions.rows.keys()
        assert all(overlay.rows.keys() <= questions.rows.keys() for overlay in profile.overlays)
    assert questions.overlays == ()


def test_a_captured_profile_matches_its_own_host(tmp_path: Path) -> None:
    root = small_server(tmp_path / "host")
    put(root, "/proc/sys/net/ipv4/tcp_rmem", "4096\t131072\t6291456\n")
    request = {"action": "tune", "check": True, "scope": "capture"}
    answer = visit({**request, "profile": profiles.compiled(profiles.questions())}, Host(root))
    rows = loaded(tmp_path, *answer["knobs"])
    assert rows["sysctl.vm.swappiness"] == "60"
    assert rows["sysctl.net.ipv4.tcp_rmem"] == "4096 131072 6291456"
    assert rows["thp.enabled"] == "madvise"
    again = visit({**request, "profile": profiles.compiled(profiles.load(tmp_path / "good.yml", []))}, Host(root))
    unchanged = {knob["knob"]: knob["now"] == knob["desired"] for knob in again["knobs"] if knob["knob"] in rows}
    assert unchanged == dict.fromkeys(rows, True)
