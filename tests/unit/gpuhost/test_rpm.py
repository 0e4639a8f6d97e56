"""Packages of rpm: what dnf prints and rpm has, as texts and transactions. Real dnf is in the integration tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.resources import rpm
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.resources.lock import LIST, Lock

from tests.rig.trees.host import TreeHost, program, put

DATA = Path(__file__).parents[2] / "data/gpu_stack"
# Two kernels beside each other, and a driver whose replacement was interrupted.
INSTALLED = """kernel-core\t0:5.14.0-427.el9\tx86_64\t1
kernel-core\t0:5.14.0-503.el9\tx86_64\t2
nvidia-driver-cuda\t3:580.178.04-1.el9\tx86_64\t9
nvidia-driver-cuda\t3:580.105.08-1.el9\tx86_64\t4
dkms\t0:3.2.2-1.el9\tnoarch\t3
glibc\t0:2.34-100.el9\ti686\t1
glibc\t0:2.34-83.el9\tx86_64\t1
"""


@pytest.fixture
def host(tmp_path: Path) -> TreeHost:
    program(tmp_path, "rpm", f"#!/bin/sh\nwhile read -r row; do echo \"$row\"; done <<'END'\n{INSTALLED}END\n")
    program(tmp_path, "dnf", "#!/bin/sh\necho kernel-core\n")
    (tmp_path / "tmp").mkdir()
    return TreeHost(tmp_path)


def test_a_package_has_its_version_and_its_reason_and_kernels_stay_beside_each_other(host: TreeHost) -> None:
    assert rpm.states(host, ["dkms", "kernel-core=5.14.0-503.el9", "kernel-core=6.0-1.el9", "gone"]) == {
        "dkms": "3.2.2-1.el9 auto",
        "kernel-core=5.14.0-503.el9": "5.14.0-503.el9 manual",
        "kernel-core=6.0-1.el9": None,
        "gone": None,
    }


def test_two_versions_of_a_package_are_an_interrupted_replacement_and_two_architectures_are_none(
    host: TreeHost,
) -> None:
    assert rpm.states(host, ["nvidia-driver-cuda"]) == {
        "nvidia-driver-cuda": "3:580.178.04-1.el9,3:580.105.08-1.el9 duplicate"
    }
    [(name, rows)] = rpm.duplicates(host).items()
    assert (name, rows[1].exact) == ("nvidia-driver-cuda", "nvidia-driver-cuda-3:580.105.08-1.el9.x86_64")


def test_a_recorded_table_has_what_is_installed_replaced_and_removed() -> None:
    installs, removes = rpm.resolved((DATA / "dnf_assumeno_upgrade.txt").read_text())
    assert installs
    assert removes
    assert all("-" in version for version in installs.values())


def test_a_name_that_is_none_is_refused() -> None:
    with pytest.raises(RuntimeError, match="no name of a package"):
        _ = rpm.Change({"a\nrun": "1-1"}, {}).script


@pytest.mark.parametrize("before", ["", "# site's\nbash-0:5.1-1.el9.*\n", "bash-0:5.1-1.el9.*"])
def test_a_lock_is_a_line_of_its_own_and_others_stay(tmp_path: Path, before: str) -> None:
    put(tmp_path, LIST, before, 0o640)
    host, lock = TreeHost(tmp_path), Lock("dkms")
    lock.write(host, "3.2.2-1.el9")
    assert host.read(LIST).splitlines() == [*before.splitlines(), "dkms-0:3.2.2-1.el9.*"]
    assert (lock.read(host), Lock("bash-0").read(host)) == ("3.2.2-1.el9", None)
    lock.write(host, "3:4.0-1.el9")
    assert lock.read(host) == "3:4.0-1.el9"
    lock.write(host, None)
    assert host.read(LIST).splitlines() == before.splitlines()
    assert (tmp_path / LIST[1:]).stat().st_mode & 0o777 == 0o640
