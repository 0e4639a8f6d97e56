"""Governors, energy preferences, idle states and boost, per processor, now and after a reboot."""

from __future__ import annotations

import errno
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.kinds import cpu

from tests.rig.machines import write_tree
from tests.rig.trees.hardware import CPU, Pstate, Refusing, metal, of_cpus
from tests.rig.trees.host import changed, content, link, put, small_server, states, tune, undo, units

GOVERNOR = "cpufreq/scaling_governor"
PREFERENCE = "cpufreq/energy_performance_preference"


def knob(answer: dict[str, Any], name: str) -> dict[str, Any]:
    return next(k for k in answer["knobs"] if k["knob"] == name)


def pstate(root: Path, governor: str) -> Path:
    """A machine whose driver has two governors and an energy preference."""
    return metal(root, [governor] * 4, offered="performance powersave", driver="intel_pstate")


def text(root: Path, path: str) -> str:
    return (root / path.lstrip("/")).read_text()


def test_every_processor_gets_the_governor_and_undo_gives_each_its_own_back(tmp_path: Path) -> None:
    before = ["schedutil", "powersave", "performance", "schedutil"]
    root = metal(tmp_path, before)
    files = content(root)
    answer = tune(root, {"cpu.governor": "performance"})
    assert of_cpus(root, GOVERNOR) == ["performance"] * 4
    assert knob(answer, "cpu.governor")["was"]["now"] == "schedutil on 2, powersave on 1, performance on 1 of 4"
    undo(root)
    assert of_cpus(root, GOVERNOR) == before
    after = content(root)
    after["run/standin-units.json"] = files["run/standin-units.json"]
    assert after == files


def test_check_says_what_a_run_changes_and_a_second_run_changes_nothing(tmp_path: Path) -> None:
    root = metal(tmp_path)
    put(root, f"{CPU}/cpufreq/boost", "0\n")
    knobs = {"cpu.governor": "performance", "cpu.idle_latency_us": "10", "cpu.boost": "on"}
    files = content(root)
    checked = tune(root, knobs, check=True)
    assert content(root) == files
    assert changed(checked) == changed(tune(root, knobs)) == {*knobs, "program.gpuctl-boot"}
    files = content(root)
    assert changed(tune(root, knobs)) == set()
    assert content(root) == files


def test_a_line_for_gpuctl_boot_keeps_the_governor_over_a_reboot(tmp_path: Path) -> None:
    root = metal(tmp_path)
    answer = tune(root, {"cpu.governor": "performance"})
    assert f"{CPU}/cpu[0-9]*/{GOVERNOR} performance\n" in text(root, "/etc/gpuctl/boot.conf")
    assert knob(answer, "cpu.governor")["was"] == {"now": "schedutil (4 CPUs)", "boot": "kernel default"}
    assert (knob(answer, "cpu.governor")["now"], knob(answer, "cpu.governor")["boot"]) == (
        "performance (4 CPUs)",
        "performance",
    )


def test_a_virtual_machine_without_frequency_control_cannot_have_a_governor(tmp_path: Path) -> None:
    root = small_server(tmp_path)
    put(root, f"{CPU}/online", "0-1\n")
    reading = knob(tune(root, {"cpu.governor": "performance"}), "cpu.governor")
    assert reading["state"] == "unsupported"
    assert reading["reason"].startswith("no CPU frequency control on this machine: in a virtual machine")


def test_a_governor_that_the_driver_lacks_is_unsupported_and_the_answer_names_what_there_is(tmp_path: Path) -> None:
    root = pstate(tmp_path, "powersave")
    reading = knob(tune(root, {"cpu.governor": "schedutil"}), "cpu.governor")
    assert reading["state"] == "unsupported"
    assert reading["reason"] == "intel_pstate does not offer schedutil here: it has performance, powersave"


def test_offline_processors_are_left_out_and_named(tmp_path: Path) -> None:
    root = metal(tmp_path)
    put(root, f"{CPU}/online", "0-2\n")
    answer = tune(root, {"cpu.governor": "performance"})
    assert knob(answer, "cpu.governor")["state"] == "ok"
    assert knob(answer, "cpu.governor")["notes"] == ["processors 3 are offline and left out"]
    assert of_cpus(root, GOVERNOR) == ["performance"] * 3 + ["schedutil"]


def test_a_processor_that_goes_while_it_is_being_read_is_left_out(tmp_path: Path) -> None:
    root = metal(tmp_path)
    host = Refusing(root, reads={"cpu3/cpufreq": errno.EBUSY})
    assert knob(tune(root, {"cpu.governor": "performance"}, host), "cpu.governor")["state"] == "ok"
    assert of_cpus(root, GOVERNOR) == ["performance"] * 3 + ["schedutil"]


def test_a_processor_that_comes_back_is_set_by_the_next_run(tmp_path: Path) -> None:
    root = metal(tmp_path)
    put(root, f"{CPU}/online", "0-2\n")
    tune(root, {"cpu.governor": "performance"})
    put(root, f"{CPU}/online", "0-3\n")
    assert knob(tune(root, {"cpu.governor": "performance"}), "cpu.governor")["state"] == "ok"
    assert of_cpus(root, GOVERNOR) == ["performance"] * 4


def test_a_processor_that_went_away_does_not_keep_the_others_from_being_put_back(tmp_path: Path) -> None:
    root = metal(tmp_path)
    tune(root, {"cpu.governor": "performance"})
    answer = undo(root, Refusing(root, reads={"cpu3/cpufreq": errno.EBUSY}))
    assert states(answer)["cpu.governor"] == "ok"
    assert of_cpus(root, GOVERNOR) == ["schedutil"] * 3 + ["performance"]


def test_a_governor_that_somebody_else_changed_since_is_a_conflict_and_stays(tmp_path: Path) -> None:
    root = metal(tmp_path)
    tune(root, {"cpu.governor": "performance"})
    put(root, f"{CPU}/cpu1/{GOVERNOR}", "ondemand\n")
    assert states(undo(root))["cpu.governor"] == "conflict"
    assert of_cpus(root, GOVERNOR) == ["performance", "ondemand", "performance", "performance"]
    undo(root, force=True)
    assert of_cpus(root, GOVERNOR) == ["schedutil"] * 4


def test_performance_governor_and_preference_are_set_once_and_stay(tmp_path: Path) -> None:
    root = pstate(tmp_path, "powersave")
    host = Pstate(root).preferences(*["balance_power"] * 4)
    knobs = {"cpu.energy_performance_preference": "performance", "cpu.governor": "performance"}
    assert set(states(tune(root, knobs, host)).values()) == {"ok"}
    assert changed(tune(root, knobs, host)) == set()
    undo(root, host)
    assert (of_cpus(root, GOVERNOR), of_cpus(root, PREFERENCE)) == (["powersave"] * 4, ["balance_power"] * 4)


@pytest.mark.parametrize("order", [*permutations(["cpu.governor", "cpu.energy_performance_preference"])])
@pytest.mark.parametrize("preference", ["power", "performance"])
def test_leaving_the_performance_governor_sets_the_preference_it_held(
    tmp_path: Path, order: tuple[str, ...], preference: str
) -> None:
    root = pstate(tmp_path, "performance")
    host = Pstate(root).preferences(*["balance_power"] * 4)
    desired = {"cpu.governor": "powersave", "cpu.energy_performance_preference": preference}
    knobs = {name: desired[name] for name in order}
    checked = changed(tune(root, knobs, host, check=True))
    assert checked >= set(knobs)
    assert set(states(tune(root, knobs, host)).values()) == {"ok"}
    assert of_cpus(root, PREFERENCE) == [preference] * 4
    assert changed(tune(root, knobs, host)) == set()
    undo(root, host)
    assert (of_cpus(root, GOVERNOR), of_cpus(root, PREFERENCE)) == (["performance"] * 4, ["performance"] * 4)


@pytest.mark.parametrize("governor", ["performance", None])
def test_a_preference_that_the_governor_forbids_is_unsupported_and_says_so(
    tmp_path: Path, governor: str | None
) -> None:
    root = pstate(tmp_path, "performance")
    host = Pstate(root).preferences(*["balance_power"] * 4)
    knobs = {"cpu.energy_performance_preference": "power"} | ({"cpu.governor": governor} if governor else {})
    reading = knob(tune(root, knobs, host), "cpu.energy_performance_preference")
    assert reading["state"] == "unsupported"
    assert "governor performance" in reading["reason"]


def test_a_governor_that_cannot_be_had_does_not_make_the_preference_flap(tmp_path: Path) -> None:
    root = pstate(tmp_path, "performance")
    host = Pstate(root).preferences(*["balance_power"] * 4)
    knobs = {"cpu.governor": "schedutil", "cpu.energy_performance_preference": "performance"}
    tune(root, knobs, host)
    assert changed(tune(root, knobs, host)) == set()


def test_a_preference_the_driver_does_not_know_is_unsupported(tmp_path: Path) -> None:
    root = pstate(tmp_path, "powersave")
    host = Pstate(root).preferences(*["power"] * 4)
    reading = knob(
        tune(root, {"cpu.energy_performance_preference": "balance_performance"}, host),
        "cpu.energy_performance_preference",
    )
    assert reading["state"] == "unsupported"
    assert "balance_power, power" in reading["reason"]


def test_the_energy_performance_bias_is_set_where_processors_have_one(tmp_path: Path) -> None:
    root = metal(tmp_path)
    for number, bias in enumerate("6606"):
        put(root, f"{CPU}/cpu{number}/power/energy_perf_bias", f"{bias}\n")
    assert states(tune(root, {"cpu.energy_perf_bias": "0"}))["cpu.energy_perf_bias"] == "ok"
    assert of_cpus(root, "power/energy_perf_bias") == ["0"] * 4
    undo(root)
    assert of_cpus(root, "power/energy_perf_bias") == ["6", "6", "0", "6"]


def test_processors_without_a_bias_cannot_have_one(tmp_path: Path) -> None:
    reading = knob(tune(metal(tmp_path), {"cpu.energy_perf_bias": "0"}), "cpu.energy_perf_bias")
    assert reading["reason"] == "no energy-performance bias on this machine: only Intel's processors have one"


def test_idle_states_that_wake_too_slowly_are_disabled(tmp_path: Path) -> None:
    root = metal(tmp_path)
    answer = tune(root, {"cpu.idle_latency_us": "10"})
    assert [of_cpus(root, f"cpuidle/state{n}/disable")[0] for n in range(4)] == ["0", "0", "0", "1"]
    assert knob(answer, "cpu.idle_latency_us")["was"] == {"now": "133 C6 (4 CPUs)", "boot": "kernel default"}
    assert knob(answer, "cpu.idle_latency_us")["now"] == "10 C1E (4 CPUs)"
    assert "cpu.idle_latency_us 10\n" in text(root, "/etc/gpuctl/boot.conf")


def test_a_higher_limit_enables_states_again_and_undo_restores_the_original(tmp_path: Path) -> None:
    root = metal(tmp_path)
    put(root, f"{CPU}/cpu2/cpuidle/state2/disable", "1\n")
    tune(root, {"cpu.idle_latency_us": "0"})
    tune(root, {"cpu.idle_latency_us": "200"})
    assert {*of_cpus(root, "cpuidle/state2/disable"), *of_cpus(root, "cpuidle/state3/disable")} == {"0"}
    undo(root)
    assert of_cpus(root, "cpuidle/state2/disable") == ["0", "0", "1", "0"]


def test_a_state_that_the_kernel_disables_stays_disabled(tmp_path: Path) -> None:
    root = metal(tmp_path)
    for number in range(4):
        put(root, f"{CPU}/cpu{number}/cpuidle/state2/disable", "1\n")
        put(root, f"{CPU}/cpu{number}/cpuidle/state2/default_status", "disabled\n")
    answer = tune(root, {"cpu.idle_latency_us": "10"})
    assert of_cpus(root, "cpuidle/state2/disable") == ["1"] * 4
    assert knob(answer, "cpu.idle_latency_us")["now"] == "2 C1 (4 CPUs)"
    assert changed(tune(root, {"cpu.idle_latency_us": "10"})) == set()


def test_all_192_processors_of_a_p5_lose_the_slow_state_and_get_it_back(tmp_path: Path) -> None:
    write_tree("p5", tmp_path)
    units(tmp_path)
    tune(tmp_path, {"cpu.idle_latency_us": "50"})
    assert of_cpus(tmp_path, "cpuidle/state2/disable") == ["1"] * 192
    undo(tmp_path)
    assert of_cpus(tmp_path, "cpuidle/state2/disable") == ["0"] * 192


@pytest.mark.parametrize(("path", "off", "on"), [("cpufreq/boost", "0", "1"), ("intel_pstate/no_turbo", "1", "0")])
def test_boost_is_one_switch_that_some_drivers_have_the_other_way_round(
    tmp_path: Path, path: str, off: str, on: str
) -> None:
    root = metal(tmp_path)
    put(root, f"{CPU}/{path}", f"{off}\n")
    answer = tune(root, {"cpu.boost": "on"})
    assert knob(answer, "cpu.boost")["was"] == {"now": "off", "boot": "kernel default"}
    assert (knob(answer, "cpu.boost")["now"], knob(answer, "cpu.boost")["boot"]) == ("on", "on")
    assert text(root, f"{CPU}/{path}") == f"{on}\n"
    undo(root)
    assert text(root, f"{CPU}/{path}") == f"{off}\n"


def test_turbo_that_the_firmware_forbids_is_unsupported_and_not_tried_again_before_the_next_boot(
    tmp_path: Path,
) -> None:
    root = metal(tmp_path)
    put(root, f"{CPU}/intel_pstate/no_turbo", "1\n")
    host = Refusing(root, writes={"no_turbo": errno.EPERM})
    assert states(tune(root, {"cpu.boost": "on"}, host))["cpu.boost"] == "unsupported"
    host.asked.clear()
    assert states(tune(root, {"cpu.boost": "on"}, host))["cpu.boost"] == "unsupported"
    assert not [path for path in host.asked if "no_turbo" in path]


def test_other_owners_of_the_governor_are_named_with_file_and_line(tmp_path: Path) -> None:
    root = metal(tmp_path)
    wants = root / "etc/systemd/system/multi-user.target.wants"
    put(root, "/etc/tuned/active_profile", "powersave\n")
    put(root, "/usr/lib/tuned/powersave/tuned.conf", "[cpu]\ngovernor=ondemand|powersave\nboost=0\n")
    put(root, "/etc/default/cpupower", "# governor='x'\ngovernor='ondemand'\n")
    put(root, "/etc/systemd/system/slow.service", "[Service]\nExecStart=cpupower frequency-set -g powersave\n")
    wants.mkdir(parents=True, exist_ok=True)
    for name in ("tuned", "cpupower"):
        (wants / f"{name}.service").symlink_to(f"/usr/lib/systemd/system/{name}.service")
    reading = knob(tune(root, {"cpu.governor": "performance"}), "cpu.governor")
    assert {(c["owner"], c["where"]) for c in reading["conflicts"]} == {
        ("tuned profile powersave", "/usr/lib/tuned/powersave/tuned.conf:2"),
        ("cpupower.service", "/etc/default/cpupower:2"),
        ("unit", "/etc/systemd/system/slow.service:2"),
    }
    assert reading["state"] == "ok"


def test_owners_of_the_same_value_are_no_conflict(tmp_path: Path) -> None:
    root = metal(tmp_path)
    put(
        root,
        "/etc/systemd/system/fast.service",
        f"[Service]\nExecStart=sh -c 'echo performance > {CPU}/cpu0/{GOVERNOR}'\n",
    )
    put(root, f"{CPU}/intel_pstate/no_turbo", "0\n")
    put(root, "/etc/rc.local", f"echo 0 > {CPU}/intel_pstate/no_turbo\n")
    answer = tune(root, {"cpu.governor": "performance", "cpu.boost": "on"})
    assert [k["conflicts"] for k in answer["knobs"][:2]] == [[], []]


def test_cloud_init_has_the_last_word_after_a_reboot(tmp_path: Path) -> None:
    root = metal(tmp_path)
    put(root, "/etc/cloud/cloud.cfg.d/99-x.cfg", "bootcmd:\n  - cpupower frequency-set -g ondemand\n")
    assert states(tune(root, {"cpu.governor": "performance"}))["cpu.governor"] == "contested"


def test_power_profiles_daemon_sets_its_own_values_whenever_it_starts(tmp_path: Path) -> None:
    root = metal(tmp_path)
    knobs = {"cpu.governor": "performance"}
    assert states(tune(root, knobs))["cpu.governor"] == "ok"
    unit = "power-profiles-daemon.service"
    link(root, f"/etc/systemd/system/graphical.target.wants/{unit}", f"/usr/lib/systemd/system/{unit}")
    assert states(tune(root, knobs))["cpu.governor"] == "contested"


@pytest.mark.parametrize(
    ("key", "value"),
    [("governor", "turbo"), ("energy_perf_bias", "16"), ("energy_performance_preference", "default"), ("boost", "1")],
)
def test_values_that_could_never_be_right_are_refused_before_any_host_is_touched(key: str, value: str) -> None:
    kind = cpu.type_of(key)
    assert kind is not None
    with pytest.raises(ValueError, match="must"):
        kind.check(value)


def test_yaml_on_and_off_are_taken_for_boost() -> None:
    kind = cpu.type_of("boost")
    assert kind is not None
    assert [kind.check(value) for value in (True, False, "on")] == ["on", "off", "on"]
    assert cpu.type_of("clock") is None
