"""nccl-tests of a host: built for its GPUs from a pinned archive, changed only where it differs, refused, undone."""

from __future__ import annotations

import fcntl
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost import nccl_tests
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.facts import programs, stack
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.facts.login import User
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.host import Host
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.resources import nccl_tests as resource

from tests.rig.standin_nccl_source import HEADERS, MAKEFILE, SOURCE, STANDINS, archive
from tests.rig.trees.host import program, put, small_server, tune, undo

KNOB = "gpu_stack.nccl_tests"
VERSION = "2.17.6"
BUILT = nccl_tests.HOME[1:]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A host with two kinds of GPUs, a stand-in for nvcc, headers, and the real make and g++ of this machine."""
    root = small_server(tmp_path)
    smi(root, "9.0", "8.0", "9.0")
    program(root, "make", '#!/bin/sh\nexec /usr/bin/make "$@"\n')
    for name in ("flock", "timeout"):
        program(root, name, f'#!/bin/sh\nPATH=/usr/bin:/bin:$PATH exec /usr/bin/{name} "$@"\n')
    program(root, "g++", "#!/bin/sh\n")
    put(root, "/usr/local/cuda/bin/nvcc", (STANDINS / "standin-nvcc").read_text(), 0o755)
    for path in HEADERS:
        put(root, path, "")
    return root


def files(root: Path) -> set[str]:
    """Files of the host, without gpuctl's records and its lock."""
    ours = (root / "var/lib/gpuctl", root / "run/gpuctl")
    every = (path for path in root.rglob("*") if path.is_file())
    return {str(path) for path in every if not any(path.is_relative_to(folder) for folder in ours)}


def smi(root: Path, *compute: str) -> None:
    program(root, "nvidia-smi", "#!/bin/sh\n" + "".join(f"echo {value}\n" for value in compute))


def value(root: Path, version: str = VERSION, **more: str) -> dict[str, Any]:
    sha256 = archive(root / SOURCE[1:], version)
    row = {"version": version, "sha256": sha256, "uri": f"file:{SOURCE}/v{version}.tar.gz", **more}
    return {"shown": version, "nccl_tests": row}


def bring(root: Path, desired: dict[str, Any], check: bool = False) -> dict[str, Any]:
    return dict(tune(root, {KNOB: desired}, scope="gpu_stack", check=check)["knobs"][0])


def test_it_is_built_once_for_the_gpus_of_the_host_and_undo_leaves_nothing(root: Path) -> None:
    desired = value(root)
    before = files(root)
    row = bring(root, desired, check=True)
    assert (row["state"], row["now"], row["desired"]) == ("differs", "absent", "2.17.6 sm_80,sm_90"), row["reason"]
    assert not (root / BUILT).exists()
    row = bring(root, desired)
    assert (row["state"], row["changed"]) == ("ok", True), row["reason"]
    text = (root / BUILT / "bin/all_reduce_perf").read_text()
    assert "for sm_80 sm_90, with" in text
    assert "/usr/local/nccl/lib:" in text
    assert sorted(path.name for path in (root / "opt/gpuctl").iterdir()) == ["nccl-tests"]
    row = bring(root, desired)
    assert (row["state"], row["changed"], row["now"]) == ("ok", False, "2.17.6 sm_80,sm_90")
    undo(root, scope="gpu_stack")
    assert files(root) == before
    assert not (root / "opt/gpuctl").exists()
    assert not (root / "var/lib/gpuctl/nccl-tests-work").exists()


def test_another_version_or_other_gpus_are_built_again_and_undo_returns_what_was_before_all(root: Path) -> None:
    bring(root, value(root, "2.16.3"))
    assert "a rollback to it builds 2.16.3 sm_80,sm_90 again" in bring(root, value(root), check=True)["notes"][0]
    row = bring(root, value(root))
    assert (row["changed"], row["state"]) == (True, "ok")
    smi(root, "7.5")
    assert bring(root, value(root))["changed"] is True
    assert "for sm_75, with" in (root / BUILT / "bin/all_reduce_perf").read_text()
    undo(root, scope="gpu_stack")
    assert not (root / BUILT).exists()


def test_a_removed_test_is_drift_and_is_built_again(root: Path) -> None:
    bring(root, value(root))
    (root / BUILT / "bin/all_reduce_perf").unlink()
    row = bring(root, value(root), check=True)
    assert (row["state"], row["now"]) == ("differs", "2.17.6 sm_80,sm_90, damaged")
    assert row["notes"] == ["all_reduce_perf is missing or was changed"]
    undo(root, scope="gpu_stack")
    assert not (root / BUILT).exists()


def test_everything_that_a_build_lacks_is_named_before_anything_is_fetched(root: Path) -> None:
    for path in ("usr/local/cuda/bin/nvcc", "usr/bin/make", "usr/bin/g++", *(path[1:] for path in HEADERS)):
        (root / path).unlink()
    row = bring(root, value(root))
    assert row["state"] == "refused"
    for name in ("nvcc", "nccl.h", "mpi.h", "make", "g++"):
        assert f"{name} is missing" in row["reason"]
    assert not (root / "opt/gpuctl").exists()


def test_a_gpu_that_the_compiler_does_not_know_is_refused(root: Path) -> None:
    smi(root, "10.3")
    assert "makes no code for sm_103" in bring(root, value(root))["reason"]


@pytest.mark.parametrize("answer", ["#!/bin/sh\nexit 9\n", "#!/bin/sh\necho '[N/A]'\n", "#!/bin/sh\n"])
def test_without_compute_capabilities_the_state_is_unknown(root: Path, answer: str) -> None:
    program(root, "nvidia-smi", answer)
    assert bring(root, value(root))["state"] == "unknown"


def test_an_archive_with_another_digest_is_not_unpacked(root: Path) -> None:
    row = bring(root, value(root, sha256="0" * 64))
    assert (row["state"], "pinned is 0000" in row["reason"]) == ("failed", True)
    assert not (root / BUILT).exists()
    assert bring(root, value(root))["state"] == "ok"


def test_a_build_that_fails_leaves_the_one_before(root: Path) -> None:
    bring(root, value(root, "2.16.3"))
    (root / SOURCE[1:]).mkdir(exist_ok=True)
    sha256 = archive(root / SOURCE[1:], VERSION, "build:\n\t@echo 'x.cu(3): error: no' >&2; exit 2\n")
    uri = f"file:{SOURCE}/v{VERSION}.tar.gz"
    row = bring(root, {"shown": VERSION, "nccl_tests": {"version": VERSION, "sha256": sha256, "uri": uri}})
    assert (row["state"], "x.cu(3): error: no; see /var/log/gpuctl-nccl-tests.log" in row["reason"]) == ("failed", True)
    assert str(nccl_tests.read(Host(root)).text).startswith("2.16.3 sm_80,sm_90 ")


def test_a_build_that_does_not_run_is_not_installed(root: Path) -> None:
    makefile = MAKEFILE.replace("\t$(CUDA_HOME)", "\t@printf '#!/bin/sh\\nexit 127\\n' > $@; /bin/chmod 755 $@ #")
    sha256 = archive(root / SOURCE[1:], VERSION, makefile)
    uri = f"file:{SOURCE}/v{VERSION}.tar.gz"
    row = bring(root, {"shown": VERSION, "nccl_tests": {"version": VERSION, "sha256": sha256, "uri": uri}})
    assert (row["state"], "does not run" in row["reason"]) == ("failed", True), row["reason"]
    assert not (root / "opt/gpuctl/nccl-tests").exists()


def test_a_run_that_was_killed_between_the_renames_is_repaired(root: Path) -> None:
    bring(root, value(root, "2.16.3"))
    (root / BUILT).rename(root / nccl_tests.FORMER[1:])
    (root / nccl_tests.NEXT[1:]).mkdir()
    assert bring(root, value(root))["state"] == "ok"
    assert sorted(path.name for path in (root / "opt/gpuctl").iterdir()) == ["nccl-tests"]


def test_runs_find_the_build_without_a_search_path(root: Path) -> None:
    bring(root, value(root))
    facts = programs.read(Host(root), {"user": User(0, "root", "self", "")})
    assert facts["test"] == f"{nccl_tests.HOME}/bin/all_reduce_perf"


def test_the_folder_of_the_site_is_only_checked(root: Path) -> None:
    desired = {"shown": "/srv/nccl", "nccl_tests": {"folder": "/srv/nccl"}}
    row = bring(root, desired)
    assert (row["state"], row["reason"]) == ("refused", "/srv/nccl/all_reduce_perf is missing, or no program")
    put(root, "/srv/nccl/all_reduce_perf", "#!/bin/sh\necho 'nccl-tests version 2.18.1'\n", 0o755)
    row = bring(root, desired)
    assert (row["state"], row["changed"], row["now"]) == ("ok", False, "/srv/nccl, 2.18.1")
    fails = "#!/bin/sh\necho 'libnccl.so.2: cannot open shared object file' >&2\nexit 127\n"
    put(root, "/srv/nccl/all_reduce_perf", fails, 0o755)
    assert "libnccl.so.2: cannot open" in bring(root, desired)["reason"]


def test_the_folder_of_the_site_replaces_the_build(root: Path) -> None:
    bring(root, value(root))
    put(root, "/srv/nccl/all_reduce_perf", "#!/bin/sh\necho USAGE\n", 0o755)
    row = bring(root, {"shown": "/srv/nccl", "nccl_tests": {"folder": "/srv/nccl"}})
    assert (row["state"], row["changed"], (root / BUILT).exists()) == ("ok", True, False)


@pytest.mark.parametrize("path", ["srv", "srv/nccl", "srv/nccl/all_reduce_perf"])
def test_a_test_that_others_may_replace_is_never_run(root: Path, path: str) -> None:
    put(root, "/srv/nccl/all_reduce_perf", f"#!/bin/sh\n: > {root}/ran\necho USAGE\n", 0o755)
    (root / path).chmod(0o775)
    _, wrong = nccl_tests.prove(Host(root), "/srv/nccl")
    assert f"as /{path} can be written by its group or by others" in wrong
    assert not (root / "ran").exists()
    (root / path).chmod(0o755)
    (root / "home").mkdir(mode=0o777, exist_ok=True)
    (root / "home/nccl").symlink_to("../srv/nccl")
    assert nccl_tests.prove(Host(root), "/home/nccl") == ("", "")
    assert (root / "ran").exists()


def test_facts_run_the_test_of_a_folder_once(root: Path) -> None:
    put(root, "/srv/nccl/all_reduce_perf", f"#!/bin/sh\necho x >> {root}/ran\necho USAGE\n", 0o755)
    facts = stack.read(Host(root), {"nccl_tests": {"folder": "/srv/nccl"}})
    assert (facts["nccl_tests"], facts["nccl_tests_lacks"]) == ("no version in its help", [])
    assert (root / "ran").read_text() == "x\n"


def test_another_archive_of_the_same_version_is_built(root: Path) -> None:
    bring(root, value(root))
    row = bring(root, value(root, sha256="0" * 64), check=True)
    assert (row["state"], row["now"]) == ("differs", "2.17.6 sm_80,sm_90")


def test_every_user_can_run_the_programs_with_a_narrow_umask(root: Path) -> None:
    desired = value(root)
    before = os.umask(0o077)
    try:
        row = bring(root, desired)
    finally:
        os.umask(before)
    assert row["state"] == "ok", row["reason"]
    for path in ("opt/gpuctl", BUILT, f"{BUILT}/bin"):
        assert (root / path).stat().st_mode & 0o777 == 0o755


def test_a_build_uses_a_private_folder_for_temporary_files(root: Path) -> None:
    nvcc = (STANDINS / "standin-nvcc").read_text()
    first, _, rest = nvcc.partition("\n")
    put(root, "/usr/local/cuda/bin/nvcc", f'{first}\necho "$TMPDIR $HOME" > {root}/places\n{rest}', 0o755)
    assert bring(root, value(root))["state"] == "ok"
    place = str(root / nccl_tests.WORK[1:] / "scratch")
    assert (root / "places").read_text().split() == [place, place]


def test_a_removal_that_was_killed_leaves_no_half_build(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bring(root, value(root))
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", lambda *_, **__: None)
        resource._remove(Host(root))
    assert not (root / BUILT).exists()
    undo(root, scope="gpu_stack")
    assert not (root / BUILT).exists()


@pytest.mark.parametrize("left", [nccl_tests.WORK, nccl_tests.NEXT, nccl_tests.FORMER])
def test_a_rollback_clears_what_a_killed_run_left(root: Path, left: str) -> None:
    bring(root, value(root, "2.16.3"))
    (root / BUILT).rename(root / left[1:])
    assert str(nccl_tests.read(Host(root)).text).endswith(" damaged")
    undo(root, scope="gpu_stack")
    assert not (root / "opt/gpuctl").exists()
    assert not (root / nccl_tests.WORK[1:]).exists()
    assert nccl_tests.read(Host(root)).text is None


def test_a_rollback_to_a_build_that_was_damaged_later_makes_it_again(root: Path) -> None:
    bring(root, value(root, "2.16.3"))
    (root / BUILT / "bin/all_reduce_perf").unlink()
    bring(root, value(root))
    undo(root, scope="gpu_stack", to="000001")
    assert nccl_tests.read(Host(root)).text == resource.NcclTests("build").read(Host(root))
    assert str(nccl_tests.read(Host(root)).text).startswith("2.16.3 ")


def test_the_headers_are_of_the_mpi_whose_mpirun_starts_the_tests(root: Path) -> None:
    program(root, "mpirun", "#!/bin/sh\n")
    put(root, "/opt/amazon/openmpi/include/mpi.h", "")
    for path in HEADERS:
        if path.endswith("mpi.h"):
            (root / path[1:]).unlink()
    tools, lacks = nccl_tests.toolchain(Host(root), ("9.0",))
    assert tools is None
    assert "mpi.h is missing for /usr/bin/mpirun" in "".join(lacks)
    put(root, "/usr/lib/x86_64-linux-gnu/openmpi/include/mpi.h", "")
    tools, _ = nccl_tests.toolchain(Host(root), ("9.0",))
    assert tools is not None
    assert tools.mpi == "/usr/lib/x86_64-linux-gnu/openmpi"


def test_a_make_that_takes_too_long_ends_with_all_that_it_started(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "LIMIT_S", 0.5)
    (root / SOURCE[1:]).mkdir(parents=True, exist_ok=True)
    sha256 = archive(root / SOURCE[1:], VERSION, "build:\n\t@/bin/sleep 600; /bin/true\n")
    uri = f"file:{SOURCE}/v{VERSION}.tar.gz"
    row = bring(root, {"shown": VERSION, "nccl_tests": {"version": VERSION, "sha256": sha256, "uri": uri}})
    assert "make was not done" in row["reason"]
    with (root / resource.LOCK[1:]).open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # nobody that inherited it lives


def test_the_folder_of_a_make_that_still_runs_is_left_alone(root: Path) -> None:
    put(root, resource.LOCK, "")
    (root / nccl_tests.WORK[1:]).mkdir(parents=True)
    with (root / resource.LOCK[1:]).open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        row = bring(root, value(root))
    assert (row["state"], "still works" in row["reason"]) == ("failed", True)
    assert (root / nccl_tests.WORK[1:]).exists()
