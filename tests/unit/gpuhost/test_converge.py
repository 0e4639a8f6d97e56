"""The engine for all kinds: check mode, idempotence, records, undo, conflicts, the lock."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost import record
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.host import Host
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.lock import last_run, lock

from tests.rig.trees.host import TreeHost, changed, content, put, small_server, states, tune, undo

KNOBS = {"sysctl.vm.swappiness": "0", "sysctl.vm.max_map_count": "262144", "thp.enabled": "always"}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return small_server(tmp_path)


def text(root: Path, path: str) -> str:
    return (root / path).read_text().strip()


def test_check_says_what_a_run_changes_and_changes_nothing(root: Path) -> None:
    before = content(root)
    checked = tune(root, KNOBS, check=True)
    assert content(root) == before
    assert changed(checked) == changed(tune(root, KNOBS)) == {*KNOBS, "program.gpuctl-boot"}


def test_a_run_sets_values_now_and_after_a_reboot(root: Path) -> None:
    answer = tune(root, KNOBS)
    assert set(states(answer).values()) == {"ok"}
    assert text(root, "proc/sys/vm/swappiness") == "0"
    assert "vm.swappiness = 0\n" in (root / "etc/sysctl.d/99-zz-gpuctl.conf").read_text()
    assert "/sys/kernel/mm/transparent_hugepage/enabled always\n" in (root / "etc/gpuctl/boot.conf").read_text()
    was = next(k for k in answer["knobs"] if k["knob"] == "sysctl.vm.swappiness")["was"]
    assert was == {"now": "60", "boot": "kernel default"}


def test_a_second_run_changes_nothing(root: Path) -> None:
    tune(root, KNOBS)
    before = content(root)
    again = tune(root, KNOBS)
    assert changed(again) == set()
    assert again["record"] is None
    assert content(root) == before


def test_undo_gives_back_every_byte(root: Path) -> None:
    before = content(root)
    tune(root, KNOBS)
    answer = undo(root)
    assert set(states(answer).values()) == {"ok"}
    after = content(root)
    after["run/standin-units.json"] = before["run/standin-units.json"]
    assert after == before
    assert undo(root)["knobs"] == []


def test_a_later_run_does_not_overwrite_the_first_value(root: Path) -> None:
    tune(root, {"sysctl.vm.swappiness": "10"})
    tune(root, {"sysctl.vm.swappiness": "0"})
    undo(root)
    assert text(root, "proc/sys/vm/swappiness") == "60"


def test_undo_to_a_record_goes_back_to_what_was_right_after_it(root: Path) -> None:
    first = tune(root, {"sysctl.vm.swappiness": "10"})["record"]
    tune(root, {"sysctl.vm.swappiness": "0", "sysctl.vm.zone_reclaim_mode": "1"})
    undo(root, to=first)
    assert (text(root, "proc/sys/vm/swappiness"), text(root, "proc/sys/vm/zone_reclaim_mode")) == ("10", "0")
    undo(root)
    assert text(root, "proc/sys/vm/swappiness") == "60"
    assert not (root / "etc/sysctl.d/99-zz-gpuctl.conf").exists()


def test_undo_to_a_record_whose_settings_were_put_back_since_is_refused(root: Path) -> None:
    first = tune(root, {"sysctl.vm.swappiness": "10", "sysctl.vm.max_map_count": "262144"})["record"]
    undo(root, only=["sysctl.vm.swappiness"])
    before = content(root)
    error = undo(root, to=first)["error"]
    assert "its settings have been undone since: sysctl.vm.swappiness" in error["wrong"]
    assert content(root) == before


def test_undo_of_one_knob_leaves_the_others(root: Path) -> None:
    tune(root, KNOBS)
    undo(root, only=["sysctl.vm.swappiness"])
    assert text(root, "proc/sys/vm/swappiness") == "60"
    assert text(root, "proc/sys/vm/max_map_count") == "262144"
    undo(root, only=["thp.*"])
    assert not (root / "usr/local/sbin/gpuctl-boot").exists(), "the boot unit goes with the last knob that needs it"


def test_undo_of_a_knob_that_was_never_set_is_refused(root: Path) -> None:
    tune(root, KNOBS)
    error = undo(root, only=["sysctl.vm.swapiness"])["error"]
    assert "has not changed sysctl.vm.swapiness" in error["wrong"]
    assert "sysctl.vm.swappiness" in error["hint"]


def test_a_knob_taken_out_of_the_profile_is_put_back(root: Path) -> None:
    tune(root, KNOBS)
    left = {name: value for name, value in KNOBS.items() if name != "sysctl.vm.swappiness"}
    checked = tune(root, left, check=True)
    restored = [k for k in checked["knobs"] if k["restores"]]
    assert [k["knob"] for k in restored] == ["sysctl.vm.swappiness"]
    tune(root, left)
    assert text(root, "proc/sys/vm/swappiness") == "60"
    assert "swappiness" not in (root / "etc/sysctl.d/99-zz-gpuctl.conf").read_text()
    assert not any(k["restores"] for k in tune(root, left)["knobs"]), "what was put back is told of once"


def test_a_knob_of_another_scope_stays(root: Path) -> None:
    tune(root, {"sysctl.vm.swappiness": "0"}, scope="site")
    tune(root, {"sysctl.vm.max_map_count": "262144"})
    assert text(root, "proc/sys/vm/swappiness") == "0"


def test_a_setting_that_somebody_else_changed_is_a_conflict_and_stays(root: Path) -> None:
    tune(root, KNOBS)
    put(root, "/proc/sys/vm/swappiness", "30\n")
    answer = undo(root)
    assert states(answer)["sysctl.vm.swappiness"] == "conflict"
    assert text(root, "proc/sys/vm/swappiness") == "30"
    assert text(root, "proc/sys/vm/max_map_count") == "65530"


def test_force_undoes_a_conflict_and_records_the_value(root: Path) -> None:
    tune(root, KNOBS)
    put(root, "/proc/sys/vm/swappiness", "30\n")
    name = undo(root, force=True)["record"]
    assert text(root, "proc/sys/vm/swappiness") == "60"
    entries = json.loads((root / f"var/lib/gpuctl/records/{name}.json").read_text())["entries"]
    assert {e["before"] for e in entries if e["setting"] == "value:/proc/sys/vm/swappiness"} == {"30"}


def test_lines_that_somebody_added_to_our_file_stay(root: Path) -> None:
    tune(root, KNOBS)
    path = root / "etc/sysctl.d/99-zz-gpuctl.conf"
    path.write_text(path.read_text() + "kernel.panic = 10\n")
    undo(root)
    assert "kernel.panic = 10\n" in path.read_text()
    assert "swappiness" not in path.read_text()


def test_one_bad_setting_stops_none_of_the_others(root: Path) -> None:
    (root / "proc/sys/vm/swappiness").unlink()
    (root / "proc/sys/vm/swappiness").mkdir()
    answer = tune(root, KNOBS)
    assert states(answer)["sysctl.vm.swappiness"] == "unknown"
    assert states(answer)["sysctl.vm.max_map_count"] == "ok"


def test_a_setting_this_host_does_not_have_is_unsupported(root: Path) -> None:
    answer = tune(root, {"sysctl.kernel.numa_balancing": "0"})
    assert states(answer) == {"sysctl.kernel.numa_balancing": "unsupported"}
    assert "/proc/sys/kernel/numa_balancing" in answer["knobs"][0]["reason"]


def test_a_sysctl_file_that_sorts_later_wins_and_is_named(root: Path) -> None:
    put(root, "/etc/sysctl.d/zzz-local.conf", "# mine\nvm.swappiness=45\n")
    answer = tune(root, {"sysctl.vm.swappiness": "0"})
    knob = answer["knobs"][0]
    assert (knob["state"], knob["now"], knob["boot"]) == ("contested", "0", "45")
    assert knob["conflicts"] == [
        {"owner": "sysctl.d", "where": "/etc/sysctl.d/zzz-local.conf:2", "value": "45", "wins": True}
    ]


def test_an_earlier_sysctl_file_loses_and_is_named_too(root: Path) -> None:
    put(root, "/usr/lib/sysctl.d/50-default.conf", "vm/swappiness = 45\n")
    knob = tune(root, {"sysctl.vm.swappiness": "0"})["knobs"][0]
    assert (knob["state"], knob["boot"]) == ("ok", "0")
    assert [(c["where"], c["wins"]) for c in knob["conflicts"]] == [("/usr/lib/sysctl.d/50-default.conf:1", False)]


def test_the_record_is_roots_alone(root: Path) -> None:
    tune(root, KNOBS)
    folder = root / "var/lib/gpuctl"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert all(stat.S_IMODE(p.stat().st_mode) == 0o600 for p in folder.rglob("*.json"))


def test_a_damaged_record_is_reported_and_nothing_changes(root: Path) -> None:
    name = tune(root, KNOBS)["record"]
    (root / f"var/lib/gpuctl/records/{name}.json").write_text("{")
    before = content(root)
    assert f"{name}.json cannot be used" in tune(root, {"sysctl.vm.swappiness": "1"})["error"]["wrong"]
    assert content(root) == before


def test_a_concurrent_run_reports_the_holder_of_the_lock(root: Path) -> None:
    with lock(Host(root), "alice@build"):
        error = tune(root, KNOBS)["error"]
    assert "alice@build has been at work on this host since" in error["wrong"]
    assert text(root, "proc/sys/vm/swappiness") == "60"


def test_a_lock_tells_the_run_before_it(root: Path) -> None:
    host = Host(root)
    assert last_run(host) == ""
    with lock(host, "alice@build") as earlier:
        assert (earlier, last_run(host)) == ("", None)
    ended = last_run(host)
    assert ended
    with lock(host, "bob@build") as earlier:
        assert earlier == ended
    assert last_run(host) not in (None, "", ended)


def test_after_a_killed_run_the_lock_knows_no_run_before_it(root: Path) -> None:
    put(root, "/run/gpuctl/lock", '{"by": "alice@build", "pid": 1, "since": "2026-01-01T00:00:00Z"}')
    assert last_run(Host(root)) is None
    with lock(Host(root), "bob@build") as earlier:
        assert earlier is None


def test_a_run_that_another_one_overtook_reads_the_host_again(root: Path) -> None:
    """The other run changes a value after this one has read it and before this one has the lock."""

    class Overtaken(TreeHost):
        overtaken = False

        def make_private_folder(self, path: str) -> None:
            super().make_private_folder(path)
            if path == "/run/gpuctl" and not self.overtaken:
                self.overtaken = True
                tune(root, {"sysctl.vm.swappiness": "1"}, scope="other")

    answer = tune(root, {"sysctl.vm.swappiness": "0"}, host=Overtaken(root))
    assert states(answer) == {"sysctl.vm.swappiness": "ok"}
    (knob,) = answer["knobs"]
    assert knob["steps"][0] == {"setting": "value:/proc/sys/vm/swappiness", "before": "1", "after": "0"}


def test_a_value_is_read_once_before_its_change_and_once_after_it(root: Path) -> None:
    events: list[str] = []

    class Watched(TreeHost):
        def read(self, path: str) -> str:
            events.append(f"read {path}")
            return super().read(path)

        def write(self, path: str, text: str) -> None:
            super().write(path, text)
            events.append(f"wrote {path}")

    tune(root, KNOBS, host=Watched(root))
    for path in ("/proc/sys/vm/swappiness", "/proc/sys/vm/max_map_count"):
        before, after = events[: events.index(f"wrote {path}")], events[events.index(f"wrote {path}") :]
        assert (before.count(f"read {path}"), after.count(f"read {path}")) == (2, 1), (
            "the tree's own write reads it, too"
        )
    assert events.count("read /proc/cpuinfo") == 1, "facts of the machine do not change"


def test_a_check_needs_no_lock(root: Path) -> None:
    with lock(Host(root), "alice@build"):
        assert "error" not in tune(root, KNOBS, check=True)


def test_a_value_less_than_requested_is_a_failure_with_both_numbers(root: Path) -> None:
    class Stingy(TreeHost):
        def write(self, path: str, text: str) -> None:
            super().write(path, "4000" if path.endswith("max_map_count") else text)

    answer = tune(root, {"sysctl.vm.max_map_count": "262144"}, host=Stingy(root))
    assert states(answer) == {"sysctl.vm.max_map_count": "failed"}
    assert "asked for 262144, the host holds 4000" in answer["knobs"][0]["reason"]
    owned = record.owned(record.load(Host(root)))["value:/proc/sys/vm/max_map_count"]
    assert owned.holds("4000"), "what was granted is ours, so that undo takes it back"
