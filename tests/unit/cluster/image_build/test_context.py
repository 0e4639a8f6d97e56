"""Which files are sent to a build, and the archive that they are sent as."""

from __future__ import annotations

import io
import os
import tarfile
import tracemalloc
from pathlib import Path

import pytest

from gpuctl.cluster.image_build import context
from gpuctl.cluster.image_build.context import Context
from gpuctl.core.errors import GpuctlError, InvalidInput

MIB = 2**20


def put(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"{name}\n")
    return folder


def paths(found: Context) -> list[str]:
    return [each.path for each in found.members]


def unpacked(found: Context) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(b"".join(context.stream(found))), mode="r:gz") as archive:
        return {each.name: each for each in archive}


def test_what_dockerignore_and_the_sync_leave_out_is_not_sent(tmp_path: Path) -> None:
    put(tmp_path, "Dockerfile", "a.py", "b.log", ".git/HEAD", "src/__pycache__/a.pyc", "src/b.py", "own.txt")
    (tmp_path / ".dockerignore").write_text("*.log\nDockerfile\n")
    (tmp_path / ".gpuctlignore").write_text("own.txt\n")
    found = context.read(tmp_path, needs_dockerfile=True)
    assert paths(found) == [".dockerignore", ".gpuctlignore", "Dockerfile", "a.py", "src", "src/b.py"]
    assert (found.files, found.size) == (5, sum((tmp_path / name).stat().st_size for name in FILES))


FILES = (".dockerignore", ".gpuctlignore", "Dockerfile", "a.py", "src/b.py")


def test_a_containerfile_goes_by_the_name_that_the_builder_looks_for(tmp_path: Path) -> None:
    put(tmp_path, "image/Containerfile")
    found = context.read(tmp_path, "image", needs_dockerfile=True)
    assert paths(found) == ["image", "image/Containerfile", "image/Dockerfile"]
    assert unpacked(found)["image/Dockerfile"].size == len("image/Containerfile\n")


def test_a_folder_without_dockerfile_is_refused_unless_the_cluster_file_has_one(tmp_path: Path) -> None:
    put(tmp_path, "a.py", "image/a")
    with pytest.raises(InvalidInput, match="it has neither a Dockerfile nor a Containerfile"):
        context.read(tmp_path, needs_dockerfile=True)
    with pytest.raises(InvalidInput, match="its folder image has neither"):
        context.read(tmp_path, "image", needs_dockerfile=True)
    assert paths(context.read(tmp_path)) == ["a.py", "image", "image/a"]


def test_a_folder_that_is_not_there_is_reported(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="the folder does not exist"):
        context.read(tmp_path / "no")


def test_a_folder_that_cannot_be_read_is_reported_before_anything_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, "Dockerfile", "closed/a")
    scandir = os.scandir

    def refusing(path: Path) -> object:  # root may read everything
        if Path(path).name == "closed":
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refusing)
    with pytest.raises(InvalidInput, match="not all of it can be read: closed: Permission denied"):
        context.read(tmp_path, needs_dockerfile=True)
    (tmp_path / ".dockerignore").write_text("closed\n")  # as the hint says
    assert paths(context.read(tmp_path, needs_dockerfile=True)) == [".dockerignore", "Dockerfile"]


def test_the_archive_has_contents_modes_links_and_folders_and_nobody_owns_them(tmp_path: Path) -> None:
    put(tmp_path, "run.sh", "näme", "a" * 120 + "/" + "b" * 120)
    (tmp_path / "run.sh").chmod(0o755)
    (tmp_path / "link").symlink_to("run.sh")
    (tmp_path / "empty").mkdir()
    (tmp_path / "block").write_bytes(b"x" * tarfile.BLOCKSIZE)
    data = b"".join(context.stream(context.read(tmp_path)))
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as archive:
        members = {each.name: each for each in archive}
        assert members["run.sh"].mode == 0o755
        assert int(members["run.sh"].mtime) == int((tmp_path / "run.sh").stat().st_mtime)
        assert {(each.uid, each.gid, each.uname) for each in members.values()} == {(0, 0, "")}
        assert (members["link"].linkname, members["empty"].isdir()) == ("run.sh", True)
        for name in ("run.sh", "näme", "a" * 120 + "/" + "b" * 120, "block"):
            content = archive.extractfile(members[name])
            assert content is not None
            assert content.read() == (tmp_path / name).read_bytes()


def test_a_large_file_takes_little_memory_and_is_reported_of_as_it_goes(tmp_path: Path) -> None:
    with (tmp_path / "big").open("wb") as stream:
        stream.truncate(64 * MIB)
    found = context.read(tmp_path)
    told: list[int] = []
    tracemalloc.start()
    size = sum(len(piece) for piece in context.stream(found, told.append))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 4 * MIB
    assert size < MIB
    assert told[-1] == 64 * MIB
    assert told == sorted(told)


def test_a_file_that_became_shorter_or_went_away_ends_it(tmp_path: Path) -> None:
    put(tmp_path, "a", "b")
    found = context.read(tmp_path)
    (tmp_path / "a").write_text("")
    with pytest.raises(GpuctlError, match="cannot send a: it became shorter while it was read"):
        list(context.stream(found))
    (tmp_path / "a").unlink()
    with pytest.raises(GpuctlError, match="cannot send a: No such file"):
        list(context.stream(found))


def test_a_file_that_grew_is_sent_as_long_as_it_was(tmp_path: Path) -> None:
    put(tmp_path, "a", "b")
    found = context.read(tmp_path)
    (tmp_path / "a").write_text("a\nand more\n")
    assert {name: each.size for name, each in unpacked(found).items()} == {"a": 2, "b": 2}
