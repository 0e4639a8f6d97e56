"""Access to device files of a folder of the test's, by real access lists and real processes."""

from __future__ import annotations

import os
import pwd
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from gpuctl.engine import gpu_sessions
from gpuctl.reservations.agent import NotObeyed, VisitedNode
from gpuctl.reservations.local_node import local_node
from gpuctl.reservations.rules.reconcile import Session
from gpuctl.reservations.rules.reports import Order, OrderKind

ME = pwd.getpwuid(os.getuid()).pw_name
OTHER = "daemon"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for folder in ("dev/pts", "state"):
        (tmp_path / folder).mkdir(parents=True)
    for index in range(4):
        (tmp_path / f"dev/nvidia{index}").touch(mode=0o666)
    return tmp_path


def node(root: Path) -> VisitedNode:
    return local_node("gpu-1", 4, "desk:/state", root / "state", root, end_s=0.3)


def order(kind: OrderKind, fence: int, id_: str = "r1", gpus: tuple[int, ...] = (0, 1)) -> Order:
    return Order(kind, "gpu-1", fence, id_, 1, gpus)


def access(root: Path) -> list[list[int]]:
    return [gpu_sessions.users_of(root / f"dev/nvidia{index}") for index in range(4)]


def test_without_a_reservation_nobody_but_root_has_a_gpu(root: Path) -> None:
    node(root).observe(0)
    assert access(root) == [[], [], [], []]
    assert all((root / f"dev/nvidia{index}").stat().st_mode & 0o007 == 0 for index in range(4))


def test_the_group_of_the_device_files_has_no_access() -> None:
    entries = {tag: rights for tag, rights, _ in struct.iter_unpack("<HHI", gpu_sessions.acl([1000])[4:])}
    assert entries == {0x01: 6, 0x02: 6, 0x04: 0, 0x10: 6, 0x20: 0}


def test_a_session_gives_its_gpus_to_its_account_and_takes_them_back(root: Path) -> None:
    uid, agent = pwd.getpwnam(OTHER).pw_uid, node(root)
    agent.obey(order(OrderKind.PREPARE, 1), OTHER)
    assert access(root) == [[uid], [uid], [], []]
    assert agent.observe(1).sessions == [Session("r1", 1, (0, 1))]
    agent.obey(order(OrderKind.CLEAR, 2), OTHER)
    assert access(root) == [[], [], [], []]
    assert agent.observe(2).sessions == []


def test_an_old_order_is_refused(root: Path) -> None:
    agent = node(root)
    agent.obey(order(OrderKind.CLEAR, 5), ME)
    with pytest.raises(NotObeyed, match="order 4 is older than 5"):
        agent.obey(order(OrderKind.PREPARE, 4), ME)
    with pytest.raises(NotObeyed):
        agent.observe(4)
    assert access(root) == [[], [], [], []]


def test_a_restart_keeps_sessions_and_the_fence(root: Path) -> None:
    node(root).obey(order(OrderKind.PREPARE, 7), OTHER)
    again = node(root)
    assert again.observe(7).sessions == [Session("r1", 1, (0, 1))]
    with pytest.raises(NotObeyed):
        again.obey(order(OrderKind.CLEAR, 6), OTHER)


def test_device_files_that_the_driver_made_again_are_restricted_again(root: Path) -> None:
    agent = node(root)
    agent.obey(order(OrderKind.PREPARE, 1), OTHER)
    (root / "dev/nvidia0").unlink()
    (root / "dev/nvidia0").touch(mode=0o666)
    agent.observe(1)
    assert access(root)[0] == [pwd.getpwnam(OTHER).pw_uid]
    assert (root / "dev/nvidia0").stat().st_mode & 0o007 == 0


@pytest.mark.parametrize("ignores", ["", "signal.signal(signal.SIGTERM, signal.SIG_IGN); "])
def test_a_program_that_has_a_gpu_open_ends_with_its_session(root: Path, ignores: str) -> None:
    agent = node(root)
    agent.obey(order(OrderKind.PREPARE, 1), ME)
    device = str(root / "dev/nvidia1")
    code = f"import signal, time; {ignores}gpu = open({device!r}); print('open', flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-SIc", code], stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "open\n"
        if not ignores:  # the driver was loaded again
            Path(device).unlink()
            Path(device).touch()
        agent.obey(order(OrderKind.CLEAR, 2), ME)
        assert program.wait(5) in (-15, -9)


def test_an_account_that_does_not_exist_gets_nothing(root: Path) -> None:
    with pytest.raises(NotObeyed, match="there is no account 4242"):
        node(root).obey(order(OrderKind.PREPARE, 1), "4242")
    assert access(root) == [[], [], [], []]


def test_a_warning_reaches_terminals_of_its_owner_and_a_file(root: Path) -> None:
    leader, follower = os.openpty()
    agent = node(root)
    (root / "dev/pts").rmdir()
    (root / "dev/pts").symlink_to("/dev/pts")  # the kernel's terminals; the file stays in the folder of the test
    delivery = agent.warn(ME, "ends in 5 min")
    assert delivery.terminals >= 1
    assert b"*** ends in 5 min ***" in os.read(leader, 1000)
    assert (root / f"run/gpuctl-reservations/{ME}.warning").read_text() == "ends in 5 min\n"
    os.close(leader)
    os.close(follower)
