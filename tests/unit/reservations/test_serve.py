"""This host as a node, and the accounts of callers."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from gpuctl.core.errors import InvalidInput
from gpuctl.reservations import serve
from gpuctl.reservations.database import FileDatabase
from gpuctl.reservations.rules.model import Caller
from gpuctl.reservations.serve import alone, caller_of, has_account, this_host


def host(root: Path, count: int, *models: str) -> Path:
    (root / "dev").mkdir()
    for index in range(count):
        (root / f"dev/nvidia{index}").touch()
    (root / "dev/nvidiactl").touch()
    for index, model in enumerate(models):
        folder = root / f"proc/driver/nvidia/gpus/0000:0{index}:00.0"
        folder.mkdir(parents=True)
        (folder / "information").write_text(f"Model: \t\t {model}\nIRQ:   \t\t 12\n")
    return root


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA A10G", "a10g"),
        ("Tesla T4", "t4"),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA A100-SXM4-80GB", "a100"),
    ],
)
def test_the_type_is_what_the_driver_calls_the_gpus(tmp_path: Path, model: str, name: str) -> None:
    node = this_host(host(tmp_path, 2, model, model), None)
    assert (node.name, node.gpu_type, len(node.allocated)) == (os.uname().nodename, name, 2)


def test_an_unclear_type_has_to_be_named(tmp_path: Path) -> None:
    root = host(tmp_path, 2, "NVIDIA H100 80GB HBM3", "NVIDIA A10")
    with pytest.raises(InvalidInput, match="NVIDIA A10, NVIDIA H100"):
        this_host(root, None)
    assert this_host(root, "H100").gpu_type == "h100"


def test_a_host_without_device_files_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="there are no /dev/nvidia0"):
        this_host(host(tmp_path, 0), "h100")
    (tmp_path / "dev/nvidia1").touch()
    with pytest.raises(InvalidInput, match=r"are \[1\]"):
        this_host(tmp_path, "h100")


def test_root_and_named_accounts_are_admins_and_a_number_without_name_is_nobody() -> None:
    assert caller_of(0, 0, ()) == Caller("root", "root", admin=True)
    assert caller_of(1, 1, ("daemon",)) == Caller("daemon", "daemon", admin=True)
    assert caller_of(4_000_000, 4_000_001, ()) == Caller("4000000", "4000001")


def test_a_second_service_of_a_folder_is_refused_with_the_number_of_the_first(tmp_path: Path) -> None:
    wrong = f"process {os.getpid()} serves the reservations of {tmp_path} already"
    with alone(tmp_path), pytest.raises(InvalidInput, match=wrong), alone(tmp_path):
        pass
    with alone(tmp_path):
        pass


def test_the_identity_of_a_service_does_not_follow_the_name_of_its_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = FileDatabase(tmp_path).stored()
    monkeypatch.setattr(os, "uname", lambda: os.uname_result(("Linux", "other", "", "", "")))
    after = FileDatabase(tmp_path).stored()
    assert (after.identity, after.label) == (before.identity, f"other:{tmp_path}")


def test_accounts_of_root_and_of_daemons_cannot_be_added() -> None:
    assert [name for name in ("root", "daemon", "nobody", "no-such-account") if has_account(name)] == []


def test_an_error_of_the_thread_for_keys_ends_the_service(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "PASS_S", 0.001)
    monkeypatch.setattr(serve, "END_S", 10)
    done = threading.Event()

    def fail() -> None:
        done.set()
        raise OSError("the disk is full")

    keys = serve._Repeated(fail)
    keys.check()
    with keys.running():
        assert done.wait(10)
    with pytest.raises(OSError, match="the disk is full"):
        keys.check()
