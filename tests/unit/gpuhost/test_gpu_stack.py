"""Parts of the stack on a tree with a stand-in apt: one transaction, recorded, verified, taken back, and undone."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.rig.trees.host import changed, content, program, put, small_server, states, tune, undo

OLD, NEW = "580.105.08-1", "580.178.04-1"
KERNEL = "6.8.0-1021-aws"
NAMES = ("libnvidia-compute-580", "nvidia-dkms-580-open", "nvidia-modprobe")
PIN = "/etc/apt/preferences.d/gpuctl-nvidia.pref"
STANDIN_APT = Path(__file__).parents[2] / "rig/trees/standin_apt.py"
KNOB = "gpu_stack.driver"


class Packages:
    """The packages of a tree, as the stand-in keeps them."""

    def __init__(self, root: Path) -> None:
        self.path = root / "run/standin-packages.json"

    @property
    def data(self) -> dict[str, Any]:
        return dict(json.loads(self.path.read_text()))

    def set(self, **fields: Any) -> None:
        self.path.write_text(json.dumps({**self.data, **fields}))

    def texts(self) -> dict[str, str]:
        auto = self.data["auto"]
        return {
            name: f"{row['version']} {row['selection']} {'auto' if name in auto else 'manual'}"
            for name, row in self.data["installed"].items()
        }


@pytest.fixture
def root(tmp_path: Path) -> Path:
    small_server(tmp_path)
    put(tmp_path, "/proc/sys/kernel/osrelease", f"{KERNEL}\n")
    offered = {**{name: [NEW, OLD] for name in NAMES}, "dkms": ["3.0"]}
    image = {"version": "6.8", "selection": "install", "status": "installed"}
    row = {"installed": {f"linux-image-{KERNEL}": image}, "auto": [], "offered": offered, "pulls": {}}
    put(tmp_path, "/run/standin-packages.json", json.dumps(row))
    script = STANDIN_APT.read_text().replace("/usr/bin/python3", sys.executable, 1)
    for name in ("apt-get", "apt-mark", "apt-cache", "dpkg", "dpkg-query"):
        program(tmp_path, name, script)
    module(tmp_path, NEW)
    return tmp_path


def module(root: Path, full: str) -> None:
    """The module that DKMS would have built."""
    program(root, "modinfo", f"#!/bin/sh\necho {full.partition('-')[0]}\n")


def part(full: str = NEW, **more: Any) -> dict[str, Any]:
    return {
        "shown": f"{full}, open module",
        "versions": {**dict.fromkeys(NAMES, full), "dkms": "3.0"},
        "named": list(NAMES),
        "holds": [*NAMES, f"linux-image-{KERNEL}"],
        "files": {PIN: f"Pin: version {full}\n"},
        "driver": full.partition("-")[0],
        **more,
    }


def bring(root: Path, full: str = NEW, check: bool = False, **more: Any) -> dict[str, Any]:
    return tune(root, {KNOB: part(full, **more)}, scope="gpu_stack", check=check)


def reason(answer: dict[str, Any]) -> str:
    return next(str(knob["reason"]) for knob in answer["knobs"] if knob["knob"] == KNOB)


def test_a_set_is_installed_and_held_with_its_kernel_and_a_second_run_changes_nothing(root: Path) -> None:
    assert changed(bring(root, check=True)) == {KNOB}
    assert Packages(root).data["auto"] == []
    answer = bring(root)
    assert states(answer) == {KNOB: "ok"}, reason(answer)
    assert Packages(root).texts() == {
        f"linux-image-{KERNEL}": "6.8 hold manual",
        **dict.fromkeys(NAMES, f"{NEW} hold manual"),
        "dkms": "3.0 install auto",
    }
    assert changed(bring(root)) == set()


RDMA = "/etc/modules-load.d/gpuctl-rdma.conf"


def rdma(root: Path, **more: Any) -> dict[str, Any]:
    value = {"shown": "nvidia_peermem", "files": {RDMA: "nvidia_peermem\n"}, "modules": ["nvidia_peermem"], **more}
    return dict(tune(root, {"gpu_stack.rdma": value}, scope="gpu_stack")["knobs"][0])


def modprobe(root: Path, body: str = "/bin/mkdir -p {root}/sys/module/$2") -> None:
    program(root, "modprobe", f"#!/bin/sh\n{body.format(root=root)}\n")


def test_a_module_is_loaded_and_proved_by_the_kernel(root: Path) -> None:
    program(root, "systemctl", "#!/bin/sh\necho a bad line of another file >&2; exit 1")
    modprobe(root)
    row = rdma(root)
    assert row["state"] == "ok", row["reason"]
    assert (rdma(root)["changed"], rdma(root)["now"]) == (False, "loaded: nvidia_peermem")
    gone = rdma(root, shown="dmabuf", files={RDMA: None}, modules=[])
    assert (gone["state"], gone["changed"], (root / RDMA[1:]).exists()) == ("ok", True, False)


def test_a_module_that_does_not_load_has_failed_with_the_reason_of_modprobe(root: Path) -> None:
    modprobe(root, "echo \"modprobe: ERROR: could not insert '$2': Invalid argument\" >&2; exit 1")
    row = rdma(root)
    assert (row["state"], row["reason"]) == (
        "failed",
        "modprobe: ERROR: could not insert 'nvidia_peermem': Invalid argument",
    )


def test_modules_for_the_next_boot_have_their_file_and_are_not_loaded(root: Path) -> None:
    modprobe(root)
    row = rdma(root, start=False)
    assert (row["state"], row["changed"], (root / RDMA[1:]).exists()) == ("pending", True, True), row["reason"]
    assert not (root / "sys/module/nvidia_peermem").exists()
    assert rdma(root, start=False)["state"] == "pending"


def test_another_version_of_a_loaded_module_waits_for_a_reboot(root: Path) -> None:
    program(root, "modinfo", "#!/bin/sh\necho 2.6\n")
    put(root, "/dev/gdrdrv", "")
    more = {"files": {RDMA: "gdrdrv\n"}, "modules": ["gdrdrv"], "built": {"gdrdrv": "2.6"}}
    for version, state in (("2.5", "pending"), ("2.6", "ok")):
        put(root, "/sys/module/gdrdrv/version", f"{version}\n")
        row = rdma(root, **more)
        assert row["state"] == state, row["reason"]
    (root / "sys/module/gdrdrv/version").unlink()
    assert rdma(root, **more)["state"] == "unknown"


def test_a_loaded_gdrdrv_without_its_device_has_failed(root: Path) -> None:
    put(root, "/sys/module/gdrdrv/refcnt", "0\n")
    program(root, "systemctl")
    row = rdma(root, files={RDMA: "gdrdrv\n"}, modules=["gdrdrv"])
    assert (row["state"], row["reason"]) == ("failed", "gdrdrv is loaded, but /dev/gdrdrv does not exist")
    put(root, "/dev/gdrdrv", "")
    assert rdma(root, files={RDMA: "gdrdrv\n"}, modules=["gdrdrv"])["state"] == "ok"


def test_undo_restores_packages_holds_and_files_and_the_kind_alone_names_the_part(root: Path) -> None:
    before, packages = content(root), Packages(root).texts()
    bring(root, OLD)
    bring(root, NEW)
    answer = undo(root, only=["gpu_stack"])
    assert states(answer) == {KNOB: "ok"}, reason(answer)
    assert Packages(root).texts() == packages
    after = content(root)
    # The stand-in's own files: order and marks.
    for name in ("run/standin-packages.json", "run/standin-units.json", "var/lib/apt/extended_states"):
        after.pop(name, None)
        before.pop(name, None)
    assert after == before


@pytest.mark.parametrize(
    ("step", "message"),
    [
        ("download", "E: Hash Sum mismatch"),
        ("install", "dpkg: error: cannot copy extracted data: No space left on device"),
    ],
)
def test_a_transaction_that_fails_leaves_everything_as_before_and_the_next_run_ends_well(
    root: Path, step: str, message: str
) -> None:
    packages = Packages(root)
    before = packages.texts()
    packages.set(fail={"step": step, "message": message})
    answer = bring(root)
    assert states(answer) == {KNOB: "failed"}
    assert message.rpartition(": ")[2] in reason(answer)
    assert packages.texts() == before
    assert not (root / PIN[1:]).exists()
    assert states(bring(root)) == {KNOB: "ok"}


def test_what_cannot_be_taken_back_is_repaired_by_the_next_run(root: Path) -> None:
    packages = Packages(root)
    packages.set(fail={"step": "install", "message": "E: Sub-process dpkg died"}, stuck="disk full")
    answer = bring(root)
    assert reason(answer).startswith("cannot change the packages: ")
    assert "the next run repairs it" in reason(answer)
    assert (root / PIN[1:]).exists()
    packages.set(stuck="")
    assert states(bring(root)) == {KNOB: "ok"}


def test_a_change_that_was_not_planned_is_refused_before_anything_is_installed(root: Path) -> None:
    packages = Packages(root)
    offered = {**packages.data["offered"], "nvidia-persistenced": ["570.1"]}
    packages.set(offered=offered, pulls={NAMES[1]: ["nvidia-persistenced"]})
    before = packages.texts()
    answer = bring(root)
    assert "apt would now do what is not planned: install nvidia-persistenced 570.1" in reason(answer)
    assert packages.texts() == before


def test_an_earlier_version_that_is_gone_is_named_before_and_refused_by_undo(root: Path) -> None:
    bring(root, OLD)
    first = undo(root, check=True)
    assert changed(first) == {KNOB}
    packages = Packages(root)
    undo(root)
    row = {"version": "570.1", "selection": "install", "status": "installed"}
    packages.set(installed={**packages.data["installed"], NAMES[2]: row})
    unknown = bring(root, NEW, check=True, unasked=[NAMES[2]])["knobs"][0]["notes"]
    assert unknown == [f"whether rollback can restore these versions is unknown: {NAMES[2]}"]
    checked = bring(root, NEW, check=True, earlier=[NAMES[2]])
    assert checked["knobs"][0]["notes"] == [
        f"rollback cannot restore these versions, which no repository has: {NAMES[2]}"
    ]
    bring(root, NEW)
    answer = undo(root, only=["gpu_stack.driver"])
    assert states(answer) == {KNOB: "refused"}
    assert f"{NAMES[2]} 570.1" in reason(answer)
    assert packages.texts()[NAMES[0]] == f"{NEW} hold manual"


def test_a_module_that_was_not_built_is_a_failure(root: Path) -> None:
    program(root, "modinfo", "#!/bin/sh\necho 'modinfo: ERROR: Module nvidia not found.' >&2\nexit 1\n")
    program(root, "dkms", "#!/bin/sh\necho 'Error! Bad return status' >&2\nexit 10\n")
    answer = bring(root)
    assert states(answer) == {KNOB: "failed"}
    assert f"no module 580.178.04 for kernel {KERNEL}: DKMS: Error! Bad return status" in reason(answer)


def test_a_refused_part_and_one_that_is_left_alone_change_nothing(root: Path) -> None:
    knobs = {KNOB: {"refused": "one version: 2 versions in one set"}, "gpu_stack.dcgm": {}}
    answer = tune(root, knobs, scope="gpu_stack")
    assert states(answer) == {KNOB: "refused", "gpu_stack.dcgm": "ok"}
    assert reason(answer) == "one version: 2 versions in one set"


def test_another_running_driver_is_pending_until_a_reboot(root: Path) -> None:
    put(root, "/sys/module/nvidia/version", "570.86.15\n")
    answer = bring(root)
    assert states(answer) == {KNOB: "pending"}
    assert answer["knobs"][0]["notes"] == ["the running module is 570.86.15 until a reboot"]


def test_a_dependency_that_was_updated_since_still_goes(root: Path) -> None:
    bring(root)
    packages = Packages(root)
    installed = packages.data["installed"]
    installed["dkms"]["version"] = "3.0.1"
    packages.set(installed=installed)
    undo(root)
    assert set(packages.texts()) == {f"linux-image-{KERNEL}"}


def test_a_host_without_a_package_manager_is_refused(root: Path) -> None:
    (root / "usr/bin/apt-get").unlink()
    answer = bring(root)
    assert states(answer) == {KNOB: "refused"}
    assert "neither apt-get nor dnf" in reason(answer)
