"""Runs and boot programs of gpuctl take turns on a host."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost import boot_turn
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost import lock as locks
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.host import Host
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.lock import Locked, hold_off_runs, last_run, lock

from tests.rig.trees.host import put

CONFIG = "/etc/gpuctl/gpu.conf"


def test_a_run_waits_until_the_boot_programs_have_set_their_values(tmp_path: Path) -> None:
    host, order = Host(tmp_path), []
    ended = threading.Event()

    def boot_program() -> None:
        with hold_off_runs(host) as first, hold_off_runs(host) as second:
            order.append(f"boot programs {first} {second}")
            started.set()
            ended.wait(5)
            order.append("values set")

    started = threading.Event()
    thread = threading.Thread(target=boot_program)
    thread.start()
    assert started.wait(5)
    threading.Timer(0.2, ended.set).start()
    with lock(host, "ada"):
        order.append("run")
    thread.join()
    assert order == ["boot programs True True", "values set", "run"]


def test_a_run_gives_up_on_a_boot_program_that_does_not_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(tmp_path)
    monkeypatch.setattr(locks, "PATIENCE_S", 0.05)
    with hold_off_runs(host), pytest.raises(Locked, match="a boot program of gpuctl has been at work"):
        lock(host, "ada").__enter__()


def test_a_second_run_is_refused_also_while_the_first_waits_for_its_turn(tmp_path: Path) -> None:
    host = Host(tmp_path)
    with lock(host, "ada"), pytest.raises(Locked, match="ada has been at work on this host since"):
        lock(host, "eve").__enter__()


def test_a_boot_program_leaves_a_run_alone_and_comes_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    host, applied = Host(tmp_path), []
    put(tmp_path, CONFIG, "")
    put(tmp_path, "/etc/systemd/system/gpuctl-gpu.timer", "")

    def apply(_: Host) -> list[str]:
        applied.append("values")
        return []

    with lock(host, "ada"):
        assert (
            boot_turn.take(host, "gpuctl-gpu", CONFIG, apply) == 1
        )  # this host has no systemctl that could start the timer
    assert applied == []
    assert "gpuctl-gpu.timer: " in capsys.readouterr().err
    assert boot_turn.take(host, "gpuctl-gpu", CONFIG, apply) == 0
    assert applied == ["values"]


def test_a_boot_program_whose_timer_the_run_has_removed_does_not_fail(tmp_path: Path) -> None:
    host = Host(tmp_path)
    put(tmp_path, CONFIG, "")
    with lock(host, "ada"):
        assert boot_turn.take(host, "gpuctl-gpu", CONFIG, lambda _: ["not applied"]) == 0


def test_a_boot_program_sets_its_values_where_no_lock_can_be_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(tmp_path, CONFIG, "")
    put(tmp_path, "/run", "a file, where no folder can be made")
    assert boot_turn.take(Host(tmp_path), "gpuctl-gpu", CONFIG, lambda _: ["it was applied"]) == 1
    assert "without the lock of runs" in capsys.readouterr().err


def test_boot_programs_do_not_count_as_runs(tmp_path: Path) -> None:
    host = Host(tmp_path)
    before = last_run(host)
    with hold_off_runs(host):
        assert last_run(host) == before
    with lock(host, "ada") as earlier:
        assert earlier == before
