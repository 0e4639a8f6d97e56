"""Output that cannot be written is told as that, and not as a fault of ours."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuctl.cli.errors import guarded
from tests.rig.needs import ordinary_rights

LOG = Path(__file__).parents[2] / "data" / "nccl" / "h100_2n16g_allreduce.log"
COMMANDS = (["baselines", "list"], ["parse", str(LOG)], ["parse", "-o", "csv", str(LOG)], ["judge", str(LOG)])
FULL = Path("/dev/full")


@pytest.mark.skipif(not FULL.is_char_device(), reason="Linux has it, other systems do not")
@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("buffered", ["", "1"])
def test_a_full_disk_is_told_and_ends_with_3(words: list[str], buffered: str, tmp_path: Path) -> None:
    environment = {**os.environ, "GPUCTL_STATE_DIR": str(tmp_path), "PYTHONUNBUFFERED": buffered}
    with FULL.open("w") as full:
        command = [str(Path(sys.executable).with_name("gpuctl")), "nccl", *words]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, env=environment, check=False)
    assert done.returncode == 3, done.stderr
    assert "cannot write the output: No space left on device" in done.stderr
    assert "gpuctl itself failed" not in done.stderr
    assert not (tmp_path / "faults").exists()


def test_a_reader_that_has_gone_is_no_trouble(tmp_path: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as gone:
        command = [str(Path(sys.executable).with_name("gpuctl")), "nccl", "baselines", "list"]
        environment = {**os.environ, "GPUCTL_STATE_DIR": str(tmp_path)}
        done = subprocess.run(command, stdout=gone, stderr=subprocess.PIPE, text=True, env=environment, check=False)
    assert done.stderr == ""


def test_wrong_usage_that_nobody_reads_of_still_ends_with_2(tmp_path: Path) -> None:
    """As in `gpuctl nccl baselines list --no-such-option 2>&1 | true`."""
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as gone:
        command = [str(Path(sys.executable).with_name("gpuctl")), "nccl", "baselines", "list", "--no-such-option"]
        environment = {**os.environ, "GPUCTL_STATE_DIR": str(tmp_path)}
        done = subprocess.run(command, stdout=gone, stderr=gone, env=environment, check=False)
    assert done.returncode == 2


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS])
def test_a_place_that_cannot_be_written_is_named_and_no_fault_of_ours(
    number: int, capsys: pytest.CaptureFixture[str]
) -> None:
    def command(*, standalone_mode: bool) -> None:
        raise OSError(number, os.strerror(number), "/home/me/.config/gpuctl")

    with pytest.raises(SystemExit) as ended:
        guarded(command)
    assert ended.value.code == 3
    assert f"cannot write /home/me/.config/gpuctl: {os.strerror(number)}" in capsys.readouterr().err


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM])
@pytest.mark.parametrize("path", ["config/gpuctl/settings.yml", "state", "cache"])
def test_an_own_file_that_the_user_may_not_use_is_named_and_no_fault_of_ours(
    number: int, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`state`: a folder that does not exist yet, above the one that gpuctl would create."""
    code, stderr = refused(tmp_path, number, str(tmp_path / path), monkeypatch, capsys)
    assert code == 3
    assert f"cannot use {tmp_path / path}: {os.strerror(number)}" in stderr
    assert "GPUCTL_STATE_DIR" in stderr


@pytest.mark.parametrize("path", ["/etc/shadow", "ssh/key", "home", None])
def test_a_refusal_elsewhere_is_not_blamed_on_our_folders(
    path: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`home`: an existing folder above ours, which some feature could not read."""
    (tmp_path / "home").mkdir()
    name = path and str(tmp_path / path)
    monkeypatch.setenv("GPUCTL_CACHE_DIR", str(tmp_path / "home/cache"))
    code, stderr = refused(tmp_path, errno.EACCES, name, monkeypatch, capsys)
    assert code == 4
    assert "gpuctl itself failed: [Errno 13] Permission denied" in stderr
    assert "GPUCTL_STATE_DIR" not in stderr


def refused(
    root: Path, number: int, name: str | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[object, str]:
    """Return the exit code and error output of a command that the system refuses this file."""
    for folder in ("config", "state", *([] if (root / "home").exists() else ["cache"])):
        monkeypatch.setenv(f"GPUCTL_{folder.upper()}_DIR", str(root / folder / "gpuctl"))

    def command(*, standalone_mode: bool) -> None:
        raise OSError(number, os.strerror(number), name)

    with pytest.raises(SystemExit) as ended:
        guarded(command)
    return ended.value.code, capsys.readouterr().err


def test_the_log_of_a_fault_goes_to_the_temporary_folder_if_ours_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("GPUCTL_STATE_DIR", str(tmp_path / "file/gpuctl"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def command(*, standalone_mode: bool) -> None:
        raise ValueError("a fault")

    with pytest.raises(SystemExit) as ended:
        guarded(command)
    stderr = capsys.readouterr().err
    (log,) = tmp_path.glob("gpuctl-faults-*/*.log")
    assert (ended.value.code, str(log) in stderr, "Traceback" in stderr) == (4, True, False)
    assert "ValueError: a fault" in log.read_text()


@pytest.fixture
def read_only_home(tmp_path: Path) -> Iterator[tuple[list[str], dict[str, str]]]:
    """A home folder without the permission to write, and the words in front of a command that bind root to it."""
    words = ordinary_rights()
    home = tmp_path / "home"
    home.mkdir(mode=0o555)
    theirs = {name: value for name, value in os.environ.items() if not name.startswith(("GPUCTL_", "XDG_"))}
    yield words, {**theirs, "HOME": str(home)}
    home.chmod(0o755)


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("tmux new", 3),
        ("tmux feedback add x", 3),
        ("kube run true", 3),
        ("tmux feedback check", 1),
        ("kube forward list", 0),
    ],
)
def test_a_read_only_home_is_told_by_what_writes_and_does_not_matter_to_what_reads(
    command: str, code: int, read_only_home: tuple[list[str], dict[str, str]], tmp_path: Path
) -> None:
    words, environment = read_only_home
    argv = [*words, str(Path(sys.executable).with_name("gpuctl")), *command.split()]
    done = subprocess.run(argv, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert ("cannot use" in done.stderr, "Permission denied" in done.stderr) == (code == 3, code == 3)
