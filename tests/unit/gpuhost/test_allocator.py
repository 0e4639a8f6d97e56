"""An allocator for one service: its library, files, restart, and verification."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.facts.machine import Machine
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.kinds import allocator as kind
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.kinds._allocator_library import package_of
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.model import Unsupported
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.resources import restart

from tests.rig.trees.host import TreeHost, changed, content, program, put, small_server, states, tune, undo

TRAINER, LOADER = "allocator.trainer.service", "allocator.loader.service"
ENVIRONMENT = "etc/gpuctl/allocator/trainer.service.env"
DROP_IN = "etc/systemd/system/trainer.service.d/50-gpuctl-allocator.conf"
DROP_INS = "/etc/systemd/system/trainer.service.d/"
LIBRARY = "usr/lib/x86_64-linux-gnu/libjemalloc.so.2"
UNIT = "[Service]\nExecStart=/usr/bin/python3 train.py\n"
MEMORY = "run/standin.json"


@pytest.fixture(autouse=True)
def _without_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Services of the stand-in do not need a second to settle."""
    monkeypatch.setattr(restart, "STEADY", 0.0)


def services(root: Path, *units: str, text: str = UNIT, lists: bool = True) -> Path:
    """A Debian 12 host with these services running, and apt with or without its lists."""
    small_server(root)
    standin(root, "systemctl", "apt-get", "dpkg", "dpkg-query")
    for unit in units:
        put(root, f"/etc/systemd/system/{unit}.service", text)
    if lists:
        put(root, "/var/lib/apt/lists/debian", "")
    host = TreeHost(root)
    host.run("systemctl", "daemon-reload")
    for unit in units:
        host.run("systemctl", "restart", f"{unit}.service")
    return root


def standin(root: Path, *names: str) -> None:
    """Put the stand-in under each of its names."""
    text = (Path(__file__).parents[2] / "rig/trees/standin_services.py").read_text()
    for name in names:
        program(root, name, text.replace("/usr/bin/env python3", sys.executable, 1))


def pid(root: Path, unit: str = "trainer") -> str:
    return str(json.loads((root / MEMORY).read_text())["pids"][f"{unit}.service"])


def maps(root: Path, unit: str = "trainer") -> str:
    return (root / f"proc/{pid(root, unit)}/maps").read_text()


def files(root: Path) -> dict[str, str]:
    """All lasting files: without processes and state of the stand-in."""
    return {path: text for path, text in content(root).items() if not path.startswith(("proc/", "run/"))}


def knob(answer: dict[str, Any], name: str = TRAINER) -> dict[str, Any]:
    return next(k for k in answer["knobs"] if k["knob"] == name)


def test_a_service_is_restarted_with_its_allocator_and_undo_restarts_it_without(tmp_path: Path) -> None:
    root = services(tmp_path, "trainer")
    before, first = files(root), pid(root)
    knobs = {TRAINER: "jemalloc restart"}
    checked = tune(root, knobs, check=True)
    assert files(root) == before
    reading = knob(tune(root, knobs))
    assert [step["setting"] for step in reading["steps"]] == [step["setting"] for step in knob(checked)["steps"]]
    assert [step["setting"] for step in reading["steps"]] == [
        "package:libjemalloc2",
        f"file:/{ENVIRONMENT}",
        f"file:/{DROP_IN}",
        "restart:trainer.service",
    ]
    assert reading["was"] == {"now": "glibc malloc", "boot": "glibc malloc"}
    assert (reading["state"], reading["now"], reading["boot"]) == ("ok", "jemalloc", "jemalloc")
    assert "libjemalloc.so.2" in maps(root)
    assert (root / ENVIRONMENT).read_text() == (
        "LD_PRELOAD=/usr/lib/x86_64-linux-gnu/libjemalloc.so.2\n"
        "MALLOC_CONF=background_thread:true,dirty_decay_ms:10000,muzzy_decay_ms:30000\n"
    )
    second = pid(root)
    assert changed(tune(root, knobs)) == set()
    assert pid(root) == second != first
    assert states(undo(root)) == {TRAINER: "ok"}
    assert files(root) == before
    assert "libjemalloc" not in maps(root)
    assert pid(root) != second


def test_without_permission_nothing_is_restarted_and_the_setting_is_pending(tmp_path: Path) -> None:
    root = services(tmp_path, "trainer")
    first = pid(root)
    reading = knob(tune(root, {TRAINER: "jemalloc"}))
    assert (reading["state"], reading["now"], reading["boot"]) == ("pending", "glibc malloc", "jemalloc")
    assert "when it is next restarted" in reading["reason"]
    assert reading["reboot"] is False
    again = tune(root, {TRAINER: "jemalloc"})
    assert (changed(again), states(again)) == (set(), {TRAINER: "pending"})
    assert pid(root) == first
    TreeHost(root).run("systemctl", "restart", "trainer.service")
    assert knob(tune(root, {TRAINER: "jemalloc"}))["state"] == "ok"
    second = pid(root)
    assert states(undo(root)) == {TRAINER: "ok"}
    assert pid(root) == second
    assert not (root / DROP_IN).exists()


def test_a_service_that_does_not_run_gets_it_when_it_starts(tmp_path: Path) -> None:
    root = services(tmp_path)
    put(root, "/etc/systemd/system/trainer.service", UNIT)
    reading = knob(tune(root, {TRAINER: "jemalloc restart"}))
    assert (reading["state"], reading["now"], reading["boot"]) == ("ok", "not running", "jemalloc")
    assert states(undo(root)) == {TRAINER: "ok"}


def test_a_service_that_stopped_since_needs_no_restart_to_be_put_back(tmp_path: Path) -> None:
    root = services(tmp_path, "trainer")
    tune(root, {TRAINER: "jemalloc restart"})
    memory = json.loads((root / MEMORY).read_text())
    put(root, f"/{MEMORY}", json.dumps({**memory, "pids": {}}))
    answer = undo(root)
    assert states(answer) == {TRAINER: "ok"}
    assert not any(step["setting"].startswith("restart:") for step in knob(answer)["steps"])


def test_a_restart_is_refused_while_a_job_runs(tmp_path: Path) -> None:
    root = services(tmp_path, "trainer")
    put(root, "/proc/5/comm", "slurmstepd\n")
    before = content(root)
    reading = knob(tune(root, {TRAINER: "jemalloc restart"}))
    assert reading["state"] == "refused"
    assert reading["reason"].startswith("restarts trainer.service; this host is busy")
    assert files(root) == {path: text for path, text in before.items() if not path.startswith(("proc/", "run/"))}
    assert knob(tune(root, {TRAINER: "jemalloc restart"}, allow_busy=True))["state"] == "ok"


def test_a_service_that_dies_gets_its_old_files_back_and_runs_again(tmp_path: Path) -> None:
    root = services(tmp_path, "trainer", text=UNIT + "#dies-with jemalloc\n")
    before = files(root)
    reading = knob(tune(root, {TRAINER: "jemalloc restart"}))
    assert reading["state"] == "failed"
    assert reading["reason"].startswith("reverted: trainer.service does not run with jemalloc: Job for trainer.service")
    assert files(root).keys() - before.keys() == {LIBRARY}
    assert "libc.so.6" in maps(root)
    undo(root)
    assert files(root) == before


def test_a_service_that_dies_is_not_restarted_again_until_something_changes(tmp_path: Path) -> None:
    root = services(tmp_path, "trainer", text=UNIT + "#dies-with jemalloc\n")
    before, knobs = files(root), {TRAINER: "jemalloc restart"}
    tune(root, knobs)
    running = pid(root)
    for check in (True, False):
        reading = knob(tune(root, knobs, check=check))
        assert (reading["state"], reading["changed"]) == ("refused", False)
        assert reading["reason"].startswith("trainer.service did not run with jemalloc when gpuctl restarted it")
    assert pid(root) == running
    assert knob(tune(root, {TRAINER: "jemalloc restart narenas:4"}, check=True))["state"] == "differs"
    assert knob(tune(root, {TRAINER: "jemalloc"}, check=True))["state"] == "differs"
    put(root, "/proc/sys/kernel/random/boot_id", "another\n")
    assert knob(tune(root, knobs, check=True))["state"] == "differs"
    assert files(root).keys() - before.keys() == {LIBRARY}


def test_jemalloc_has_an_arena_for_each_processor_that_the_host_may_have(tmp_path: Path) -> None:
    root = services(tmp_path, "trainer")
    put(root, "/sys/devices/system/cpu/possible", "0-191\n")
    tune(root, {TRAINER: "jemalloc restart"})
    assert ",percpu_arena:percpu,narenas:192\n" in (root / ENVIRONMENT).read_text()
    tune(root, {TRAINER: "jemalloc restart narenas:4"})
    assert "MALLOC_CONF=narenas:4\n" in (root / ENVIRONMENT).read_text()


def test_a_program_that_ignores_the_preload_is_restarted_only_once(tmp_path: Path) -> None:
    root = services(tmp_path, "trainer", text=UNIT + "#deaf\n")
    reading = knob(tune(root, {TRAINER: "jemalloc restart"}))
    assert (reading["state"], reading["changed"]) == ("unsupported", True)
    assert "does not heed LD_PRELOAD" in reading["reason"]
    after = pid(root)
    assert changed(tune(root, {TRAINER: "jemalloc restart"})) == set()
    assert pid(root) == after


def test_a_program_that_accepts_the_preload_later_needs_only_a_manual_restart(tmp_path: Path) -> None:
    root = services(tmp_path, "trainer", text=UNIT + "#deaf\n")
    tune(root, {TRAINER: "jemalloc restart"})
    put(root, "/etc/systemd/system/trainer.service", UNIT)
    TreeHost(root).run("systemctl", "restart", "trainer.service")
    assert knob(tune(root, {TRAINER: "jemalloc restart"}))["state"] == "ok"


def test_a_program_that_clears_its_environment_is_not_restarted_again_before_the_next_boot(tmp_path: Path) -> None:
    root = services(tmp_path, "trainer", text=UNIT + "#deaf\n")
    knobs = {TRAINER: "jemalloc restart"}
    tune(root, knobs)
    put(root, f"/proc/{pid(root)}/environ", "")
    reading = knob(tune(root, knobs))
    assert reading["state"] == "unsupported"
    assert reading["reason"] == "trainer.service was restarted and still runs without jemalloc"
    put(root, "/proc/sys/kernel/random/boot_id", "another\n")
    assert knob(tune(root, knobs, check=True))["state"] == "differs"


def test_a_static_program_is_unsupported(tmp_path: Path) -> None:
    root = services(tmp_path, "trainer", text=UNIT + "#static\n")
    reading = knob(tune(root, {TRAINER: "jemalloc restart"}))
    assert reading["state"] == "unsupported"
    assert "statically linked" in reading["reason"]
    assert not (root / DROP_IN).exists()


def test_other_options_need_a_restart_too(tmp_path: Path) -> None:
    root = services(tmp_path, "trainer")
    tune(root, {TRAINER: "jemalloc restart"})
    reading = knob(tune(root, {TRAINER: "jemalloc restart narenas:4"}))
    assert reading["was"]["now"] == "jemalloc, other options"
    assert (reading["state"], reading["now"]) == ("ok", "jemalloc")
    assert "MALLOC_CONF=narenas:4\0" in (root / f"proc/{pid(root)}/environ").read_text()


def test_another_allocator_takes_the_place_of_the_first(tmp_path: Path) -> None:
    root = services(tmp_path, "trainer")
    before = files(root)
    tune(root, {TRAINER: "jemalloc restart"})
    reading = knob(tune(root, {TRAINER: "tcmalloc restart"}))
    assert (reading["state"], reading["now"], reading["was"]["now"]) == ("ok", "tcmalloc", "jemalloc")
    assert "TCMALLOC_MAX_TOTAL_THREAD_CACHE_BYTES=268435456\n" in (root / ENVIRONMENT).read_text()
    # Higher returns memory sooner, and its default of 1 is right: a rate of ours would slow programs down.
    assert "TCMALLOC_RELEASE_RATE" not in (root / ENVIRONMENT).read_text()
    undo(root)
    assert files(root) == before


def test_a_package_goes_with_the_last_service_that_needs_it(tmp_path: Path) -> None:
    root = services(tmp_path, "trainer", "loader")
    both = {TRAINER: "jemalloc restart", LOADER: "jemalloc restart"}
    tune(root, both)
    answer = tune(root, {LOADER: "jemalloc restart"})
    assert states(answer) == {LOADER: "ok", TRAINER: "ok"}
    assert (root / LIBRARY).exists()
    assert "jemalloc" not in maps(root)
    assert "jemalloc" in maps(root, "loader")
    assert changed(tune(root, {LOADER: "jemalloc restart"})) == set()
    undo(root, only=[LOADER])
    assert not (root / "etc/gpuctl/allocator/loader.service.env").exists()
    undo(root)
    assert not (root / LIBRARY).exists()


def test_a_library_that_was_there_before_stays(tmp_path: Path) -> None:
    root = services(tmp_path, "trainer")
    put(root, f"/{LIBRARY}", "\x7fELF")
    reading = knob(tune(root, {TRAINER: "jemalloc restart"}))
    assert not any(step["setting"].startswith("package:") for step in reading["steps"])
    undo(root)
    assert (root / LIBRARY).exists()


def test_apt_fetches_its_lists_where_they_are_missing(tmp_path: Path) -> None:
    root = services(tmp_path, "trainer", lists=False)
    assert knob(tune(root, {TRAINER: "jemalloc restart"}))["state"] == "ok"


def test_without_its_package_a_service_is_left_as_it_is(tmp_path: Path) -> None:
    root = services(tmp_path, "trainer")
    program(root, "apt-get", "#!/bin/sh\necho 'E: Unable to fetch some archives' >&2\nexit 100\n")
    before, first = files(root), pid(root)
    reading = knob(tune(root, {TRAINER: "jemalloc restart"}))
    assert reading["state"] == "failed"
    assert reading["reason"] == "cannot install libjemalloc2: E: Unable to fetch some archives"
    assert files(root) == before
    assert pid(root) == first


def test_a_drop_in_that_systemd_has_not_read_is_read(tmp_path: Path) -> None:
    root = services(tmp_path, "trainer")
    tune(root, {TRAINER: "jemalloc"})
    memory = json.loads((root / MEMORY).read_text())
    put(root, f"/{MEMORY}", json.dumps({**memory, "loaded": {}}))
    assert knob(tune(root, {TRAINER: "jemalloc"}, check=True))["state"] == "differs"
    tune(root, {TRAINER: "jemalloc"})
    assert json.loads((root / MEMORY).read_text())["loaded"]["trainer.service"] == [f"/{DROP_IN}"]


def test_a_stranger_in_our_environment_file_is_a_conflict(tmp_path: Path) -> None:
    root = services(tmp_path, "trainer")
    tune(root, {TRAINER: "jemalloc"})
    put(root, f"/{ENVIRONMENT}", "LD_PRELOAD=/opt/mine.so\n")
    assert states(undo(root)) == {TRAINER: "conflict"}
    assert (root / ENVIRONMENT).read_text() == "LD_PRELOAD=/opt/mine.so\n"


@pytest.mark.parametrize(
    ("path", "text", "line", "source"),
    [
        (DROP_INS + "a.conf", "[Service]\nEnvironment=TOKEN=x LD_PRELOAD=/opt/x.so\n", 2, "LD_PRELOAD=/opt/x.so"),
        ("/etc/default/trainer", "# site\nLD_PRELOAD=/opt/libjemalloc.so.2\n", 2, "LD_PRELOAD=/opt/libjemalloc.so.2"),
        ("/etc/ld.so.preload", "/opt/lib/libmimalloc.so.2\n", 1, "/opt/lib/libmimalloc.so.2"),
    ],
)
def test_a_second_preload_is_refused_and_named(tmp_path: Path, path: str, text: str, line: int, source: str) -> None:
    root = services(tmp_path, "trainer", text=UNIT + "EnvironmentFile=-/etc/default/trainer\n")
    put(root, path, text)
    TreeHost(root).run("systemctl", "daemon-reload")
    before = files(root)
    reading = knob(tune(root, {TRAINER: "jemalloc restart"}))
    assert reading["state"] == "refused"
    rival = reading["conflicts"][0]
    assert (rival["where"], rival["value"]) == (f"{path}:{line}", source)
    assert reading["reason"] == f"{path}:{line} preloads a library already: {source}"
    assert files(root) == before


def test_a_preload_for_logins_is_named_and_does_not_matter_to_services(tmp_path: Path) -> None:
    root = services(tmp_path, "trainer")
    put(root, "/etc/environment", 'LD_PRELOAD="/usr/lib/libtcmalloc.so.4"\n')
    reading = knob(tune(root, {TRAINER: "jemalloc restart"}))
    assert reading["state"] == "ok"
    assert [(c["owner"], c["where"], c["wins"]) for c in reading["conflicts"]] == [
        ("logins", "/etc/environment:1", False)
    ]


def test_a_preload_that_comes_from_elsewhere_is_refused(tmp_path: Path) -> None:
    root = services(tmp_path, "trainer")
    put(root, f"/proc/{pid(root)}/environ", "LD_PRELOAD=/opt/profiler.so\0")
    reading = knob(tune(root, {TRAINER: "jemalloc restart"}))
    assert (reading["state"], reading["reason"]) == (
        "refused",
        "trainer.service runs with LD_PRELOAD=/opt/profiler.so, which no file of its unit sets",
    )


def test_a_program_that_brings_an_allocator_itself_is_refused(tmp_path: Path) -> None:
    root = services(tmp_path, "trainer")
    mapped = "7f00-7f01 r-xp 0 08:01 1    /opt/venv/lib/libmimalloc.so.2 (deleted)\n"
    put(root, f"/proc/{pid(root)}/maps", maps(root) + mapped)
    reading = knob(tune(root, {TRAINER: "jemalloc restart"}))
    assert (reading["state"], reading["reason"]) == (
        "refused",
        "trainer.service brings mimalloc itself, and two allocators in one process crash",
    )


def test_a_missing_service_is_unsupported(tmp_path: Path) -> None:
    reading = knob(tune(services(tmp_path), {TRAINER: "jemalloc"}))
    assert (reading["state"], reading["reason"]) == ("unsupported", "trainer.service is not found on this host")


def test_a_host_without_systemd_is_unsupported(tmp_path: Path) -> None:
    root = services(tmp_path, "trainer")
    program(root, "systemctl", "#!/bin/sh\necho 'System has not been booted with systemd' >&2\nexit 1\n")
    assert knob(tune(root, {TRAINER: "jemalloc"}))["state"] == "unsupported"
    (root / "run/systemd/system").mkdir(parents=True)
    assert knob(tune(root, {TRAINER: "jemalloc"}))["state"] == "unknown"


class Counting(TreeHost):
    """Records the programs that it starts."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.started: list[str] = []

    def _run(self, argv: Any, *more: Any) -> Any:
        self.started.append(" ".join(argv[:2]))
        return super()._run(argv, *more)


def test_right_services_need_one_query_to_systemd(tmp_path: Path) -> None:
    root = services(tmp_path, "trainer", "loader")
    both = {TRAINER: "jemalloc restart", LOADER: "tcmalloc restart"}
    tune(root, both)
    host = Counting(root)
    assert set(states(tune(root, both, host)).values()) == {"ok"}
    assert host.started == ["systemctl show"]


def test_red_hats_packages_put_libraries_elsewhere(tmp_path: Path) -> None:
    root = services(tmp_path, "trainer")
    put(root, "/etc/os-release", 'ID=rocky\nID_LIKE="rhel"\nVERSION_ID="9.4"\n')
    for name in ("apt-get", "dpkg", "dpkg-query"):
        (root / "usr/bin" / name).unlink()
    standin(root, "dnf", "rpm")
    reading = knob(tune(root, {TRAINER: "jemalloc restart"}))
    assert (reading["state"], reading["now"]) == ("ok", "jemalloc")
    assert reading["steps"][0]["setting"] == "package:jemalloc"
    assert "/usr/lib64/libjemalloc.so.2" in maps(root)
    undo(root)
    assert not (root / "usr/lib64/libjemalloc.so.2").exists()


@pytest.mark.parametrize(
    ("distribution", "version", "jemalloc", "tcmalloc"),
    [
        ("debian", "12", "libjemalloc2", "libtcmalloc-minimal4"),
        ("debian", "13", "libjemalloc2", "libtcmalloc-minimal4t64"),
        ("ubuntu", "22.04", "libjemalloc2", "libtcmalloc-minimal4"),
        ("ubuntu", "24.04", "libjemalloc2", "libtcmalloc-minimal4t64"),
        ("rocky", "9.4", "jemalloc", "gperftools-libs"),
        ("fedora", "43", "jemalloc", "gperftools-libs"),
    ],
)
def test_each_distribution_has_its_package(distribution: str, version: str, jemalloc: str, tcmalloc: str) -> None:
    host = machine(distribution, version)
    assert (package_of(host, "jemalloc"), package_of(host, "tcmalloc")) == (jemalloc, tcmalloc)


@pytest.mark.parametrize(("distribution", "version"), [("amzn", "2023"), ("debian", "unknown"), ("linuxmint", "22")])
def test_without_a_known_package_the_error_names_the_library(distribution: str, version: str) -> None:
    with pytest.raises(Unsupported, match=r"install libjemalloc\.so\.2 yourself, and run this again"):
        package_of(machine(distribution, version), "jemalloc")


def machine(distribution: str, version: str) -> Machine:
    family = "debian" if distribution in ("debian", "ubuntu", "linuxmint") else "rhel"
    return Machine("metal", distribution, family, version, "x86_64", "", (), ())


@pytest.mark.parametrize(
    ("value", "normal"),
    [
        ("jemalloc", "jemalloc"),
        ("jemalloc restart", "jemalloc restart"),
        ({"allocator": "tcmalloc"}, "tcmalloc"),
        ({"allocator": "tcmalloc", "restart": True}, "tcmalloc restart"),
        ({"allocator": "jemalloc", "restart": "on", "conf": "narenas:4,thp:off"}, "jemalloc restart narenas:4,thp:off"),
        ({"allocator": "tcmalloc", "conf": "TCMALLOC_RELEASE_RATE=5"}, "tcmalloc TCMALLOC_RELEASE_RATE=5"),
    ],
)  # fmt: skip
def test_an_allocator_may_be_written_in_several_forms(value: object, normal: str) -> None:
    value_type = kind.type_of("trainer.service")
    assert value_type is not None
    assert value_type.check(value) == normal
    assert value_type.check(normal) == normal


@pytest.mark.parametrize(
    ("value", "wrong"),
    [
        ("", "must be jemalloc or tcmalloc"),
        ("mimalloc", "must be jemalloc or tcmalloc"),
        ({"allocator": "jemalloc", "priority": 1}, "must be jemalloc or tcmalloc"),
        ({"allocator": "jemalloc", "restart": "maybe"}, "restart must be true or false"),
        ({"allocator": "jemalloc", "conf": "narenas:4\nPATH=/tmp"}, "must be options of jemalloc"),
        ({"allocator": "tcmalloc", "conf": "narenas:4"}, "must be options of tcmalloc"),
    ],
)
def test_any_other_allocator_is_refused(value: object, wrong: str) -> None:
    value_type = kind.type_of("trainer.service")
    assert value_type is not None
    with pytest.raises(ValueError, match=wrong):
        value_type.check(value)


@pytest.mark.parametrize("name", ["trainer", "trainer@.service", "a/b.service", "trainer.timer", "..", "x y.service"])
def test_only_a_services_name_is_a_knob(name: str) -> None:
    assert kind.type_of(name) is None


def test_one_instance_of_a_template_is_a_service() -> None:
    assert kind.type_of("trainer@0.service") is not None
