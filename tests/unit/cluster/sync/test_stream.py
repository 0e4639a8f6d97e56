"""What is carried into a pod: old Pythons take it, and nothing of ours has to be there."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from gpuctl.cluster.sync import pod, stream
from gpuctl.core.errors import GpuctlError
from gpuctl.remote import packing
from gpuctl.remote.supervisor import frames
from tests.rig.cluster.receiver import fill, first, open_stream, sync

FILES = [*sorted(Path(pod.__path__[0]).glob("*.py")), Path(frames.__file__)]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_an_old_python_reads_it_and_only_the_standard_library_is_named(path: Path) -> None:
    tree = ast.parse(path.read_text(), feature_version=packing.OLDEST)
    named = {each.module or "" for each in ast.walk(tree) if isinstance(each, ast.ImportFrom)}
    named |= {alias.name for each in ast.walk(tree) if isinstance(each, ast.Import) for alias in each.names}
    ours = {
        name
        for name in named
        if name.rpartition(".")[0] in (pod.__name__, "gpuctl.remote.supervisor")
        or name in (pod.__name__, "gpuctl.remote.supervisor")
    }
    assert {name.partition(".")[0] for name in named - ours} <= sys.stdlib_module_names


def test_every_module_is_carried() -> None:
    assert {path.stem for path in FILES} == {"__init__", *(name.rpartition(".")[2] for name in stream.RECEIVER)}


def test_a_python_that_is_too_old_says_so() -> None:
    starter = packing.STARTER.replace(f"sys.version_info < {packing.OLDEST}", "sys.version_info < (99, 0)")
    done = subprocess.run([sys.executable, "-ISc", starter], capture_output=True, text=True, check=False, timeout=30)
    assert (done.returncode, done.stderr.split()[0]) == (1, "gpuctl-old-python")


def test_messages_survive_any_cut_of_the_stream() -> None:
    sent = [(frames.LOOK, ["a", "\udcff", "x" * 1000]), (frames.SYNC, {}), (frames.HELLO, {"target": "/ü"})]
    stream = b"".join(frames.pack(kind, value) for kind, value in sent)
    pieces = iter([stream[at : at + 7] for at in range(0, len(stream), 7)])
    reader = frames.Reader(lambda: next(pieces, b""))
    found = [reader.next() for _ in sent]
    assert [(kind, frames.unpack(payload)) for kind, payload in found] == sent
    with pytest.raises(EOFError):
        reader.next()


def test_a_pod_that_reads_for_long_says_that_it_is_at_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first(monkeypatch, "module.BEAT_S = -1")
    (tmp_path / "large.bin").write_bytes(bytes(5 << 20))
    stream, said = open_stream(), []
    monkeypatch.setattr(stream, "_receive", lambda kind, _: said.append(kind))
    stream.hello(str(tmp_path), "a", "ann")
    assert stream.read_states(["large.bin"])["large.bin"].kind == "file"
    assert said == [frames.WORKING] * 6  # for the path, and each 1 MiB of it
    said.clear()
    assert stream.read_states(["no", "such", "files"]) == {}
    assert said == [frames.WORKING] * 3
    stream.close()


def test_a_pod_that_deletes_for_long_says_that_it_is_at_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path / "here", {str(number): "" for number in range(5)})
    sync(tmp_path / "here", tmp_path / "there")
    first(monkeypatch, "module.BEAT_S = -1")
    stream, said = open_stream(), []
    monkeypatch.setattr(stream, "_receive", lambda kind, _: said.append(kind))
    stream.hello(str(tmp_path / "there"), "a", "ann")
    said.clear()
    for number in range(5):
        stream.send(frames.pack(frames.DELETE, {"path": str(number)}))
    stream.sync()
    stream.close()
    assert len(said) >= 5
    assert set(said) == {frames.WORKING}


def test_a_stream_of_something_else_is_no_message() -> None:
    pieces = iter([b"bash: warning: cannot set locale"])
    with pytest.raises(ValueError, match="not a message"):
        frames.Reader(lambda: next(pieces, b"")).next()


@pytest.mark.parametrize("path", ["../a", "/etc/passwd", "a/../../b", "", "a//b", ".gpuctl-sync/manifest"])
def test_a_path_that_leads_out_of_the_folder_is_never_written(tmp_path: Path, path: str) -> None:
    stream = open_stream()
    stream.hello(str(tmp_path / "there"), "a", "ann")
    stream.send(frames.pack(frames.FOLDER, {"path": path, "mode": 0o755, "source": [0, 0, 0]}))
    with pytest.raises(GpuctlError, match="our program failed in the pod: ValueError: not a path in the synced folder"):
        stream.sync()
    stream.close()
    assert {each.name for each in tmp_path.iterdir()} == {"there"}
