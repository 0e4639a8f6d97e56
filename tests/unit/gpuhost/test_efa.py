"""State of EFA's software from a tree, and what is accepted of an archive."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.efa import archive, source, state
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.host import Host
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.model import Step, Unreadable
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.record import Owned
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.resources import efa
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.unpack import BadArchive, unpack

from tests.rig.trees.host import program, put

KERNEL = "6.8.0-1021-aws"
# As the installer records it on Ubuntu; versions of its release notes.
RECORD = """# EFA installer version: 1.48.0
# Debug packages installed: no
# Packages installed:
efa_2.17.2-1.amzn1_amd64 efa-config_1.18_all libfabric1-aws_2.1.0amzn5.0_amd64 rdma-core_58.0-1_amd64
"""
INSTALLED = {"efa": "2.17.2-1.amzn1", "efa-config": "1.18", "libfabric1-aws": "2.1.0amzn5.0", "rdma-core": "58.0-1"}
FROM_KERNEL = f"/lib/modules/{KERNEL}/kernel/drivers/infiniband/core/x.ko"
MODULES = {
    "efa": {
        "filename": f"/lib/modules/{KERNEL}/updates/dkms/efa.ko",
        "version": "2.17.2g",
        "vermagic": f"{KERNEL} SMP",
    },
    "ib_core": {"filename": FROM_KERNEL},
    "ib_uverbs": {"filename": FROM_KERNEL},
}
MODINFO = """#!/bin/sh
file={root}/run/modinfo-$3
[ -e $file ] && exec /bin/cat $file
echo "modinfo: ERROR: Module $3 not found." >&2; exit 1
"""


def tree(
    root: Path,
    record: str | None = RECORD,
    installed: Mapping[str, str] = INSTALLED,
    modules: Mapping[str, Mapping[str, str]] = MODULES,
) -> Host:
    """A host with these packages, and modules for its kernel; newer versions sort behind older ones."""
    put(root, "/proc/sys/kernel/osrelease", f"{KERNEL}\n")
    if record is not None:
        put(root, state.RECORD, record)
    rows = "".join(f"{name}\t{version}\tinstalled\n" for name, version in {"bash": "5.2", **installed}.items())
    put(root, "/run/packages", rows)
    program(root, "dpkg-query", f"#!/bin/sh\nexec /bin/cat {root}/run/packages\n")
    program(root, "dpkg", '#!/bin/sh\n[ "$(printf "$2\\n$4\\n" | /usr/bin/sort -V | /usr/bin/tail -1)" = "$2" ]\n')
    for name, fields in modules.items():
        put(root, f"/run/modinfo-{name}", "".join(f"{key}:  {value}\n" for key, value in fields.items()))
    program(root, "modinfo", MODINFO.format(root=root))
    return Host(root)


def test_a_whole_installation_is_that_of_its_record(tmp_path: Path) -> None:
    now = state.read(tree(tmp_path))
    assert (now.text, now.wrong, now.driver) == ("1.48.0 full", (), "2.17.2g")


def test_nothing_of_it_is_nothing_even_with_its_folder(tmp_path: Path) -> None:
    put(tmp_path, "/opt/amazon/efa/lib/libfabric.so.1", "")
    assert state.read(tree(tmp_path, None, {})).text is None


@pytest.mark.parametrize(
    ("record", "changes", "text", "reason"),
    [
        (None, {}, "half-installed", "efa, efa-config, libfabric1-aws without a record"),
        (RECORD, {"efa-config": None}, "1.48.0 full half-installed", "efa-config 1.18 of its record is not installed"),
        # An upgrade that failed: its packages are newer than those of the record that it left.
        (RECORD, {"efa": "3.3.1-1.amzn1"}, "1.48.0 full half-installed", "efa is 3.3.1-1.amzn1, its record has 2.17.2"),
        (RECORD, {"libfabric1-aws": "1.22.0amzn1.0"}, "1.48.0 full half-installed", "libfabric1-aws is 1.22.0amzn1.0"),
        (RECORD, {"rdma-core": "50.0-2"}, "1.48.0 full half-installed", "rdma-core is 50.0-2"),
        # The installer leaves a newer package of the distribution alone.
        (RECORD, {"rdma-core": "60.0-2"}, "1.48.0 full", ""),
        ("# EFA installer version: 1.48.0\n", {}, "1.48.0 full half-installed", "names no package"),
        (RECORD.replace("libfabric1-aws_2.1.0amzn5.0_amd64 ", ""), {"libfabric1-aws": None}, "1.48.0 minimal", ""),
    ],
)
def test_an_installation_in_part_is_called_so(
    tmp_path: Path, record: str | None, changes: dict[str, str | None], text: str, reason: str
) -> None:
    installed = {name: version for name, version in {**INSTALLED, **changes}.items() if version}
    now = state.read(tree(tmp_path, record, installed))
    assert now.text == text
    assert len(now.half) == bool(reason)
    assert reason in "".join(now.half)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"efa": {}}, f"no module efa for kernel {KERNEL}: DKMS has not built 2.17.2"),
        ({"efa": {"filename": FROM_KERNEL}}, "is the kernel's own, its package is 2.17.2"),
        ({"efa": {**MODULES["efa"], "version": "2.15.3g"}}, "is 2.15.3, its package is 2.17.2"),
        ({"efa": {**MODULES["efa"], "vermagic": "6.8.0-1019-aws SMP"}}, "was built for kernel 6.8.0-1019-aws"),
        ({"ib_uverbs": {}}, "has no module ib_uverbs, which efa needs"),
        ({"ib_core": {"filename": "/lib/modules/k/updates/dkms/ib_core.ko"}}, "modules of two origins"),
    ],
)
def test_modules_that_do_not_fit_the_running_kernel_are_found(
    tmp_path: Path, changes: dict[str, dict[str, str]], reason: str
) -> None:
    modules = {name: fields for name, fields in {**MODULES, **changes}.items() if fields}
    now = state.read(tree(tmp_path, modules=modules))
    assert now.text == "1.48.0 full without-module"
    assert reason in "".join(now.unbuilt)


def test_a_module_that_is_older_than_nvidias_is_to_be_built_again(tmp_path: Path) -> None:
    record = RECORD.replace("efa-config", "efa-nv-peermem_1.2.2-1_amd64 efa-config")
    peer, nvidia = "/lib/modules/efa_nv_peermem.ko", "/lib/modules/nvidia.ko"
    modules = {**MODULES, "nvidia": {"filename": nvidia}, "efa_nv_peermem": {"filename": peer, "version": "1.2.2"}}
    host = tree(tmp_path, record, {**INSTALLED, "efa-nv-peermem": "1.2.2-1"}, modules)
    for path, age in ((peer, 100), (nvidia, 200)):
        put(tmp_path, path, "")
        os.utime(tmp_path / path[1:], (age, age))
    assert state.read(host).unbuilt == ("the module efa_nv_peermem is older than NVIDIA's, against which it is built",)
    os.utime(tmp_path / peer[1:], (300, 300))
    assert state.read(host).unbuilt == ()
    assert state.read(host).peer_memory


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("dpkg-query", "dpkg-query: damaged"),
        ("modinfo", "modinfo: damaged"),
    ],
)
def test_a_program_that_fails_leaves_the_state_unknown(tmp_path: Path, script: str, reason: str) -> None:
    host = tree(tmp_path)
    program(tmp_path, script, "#!/bin/sh\necho damaged >&2; exit 2\n")
    with pytest.raises(Unreadable, match=reason):
        state.read(host)


def test_a_record_without_a_version_is_unknown(tmp_path: Path) -> None:
    with pytest.raises(Unreadable, match="names no version"):
        state.read(tree(tmp_path, "# Packages installed:\nefa_1_all\n"))


@pytest.mark.parametrize(
    ("script", "offered", "why"),
    [
        ("printf 'domain: rdmap0-rdm\\ndomain: rdmap0-rdm\\ndomain: rdmap1-rdm\\n'", 2, ""),
        ("echo 'fi_getinfo: -61 (No data available)' >&2; exit 61", 0, ""),
        ("echo 'fi_getinfo: -38 (Function not implemented)' >&2; exit 1", None, "Function not implemented"),
    ],
)
def test_libfabrics_devices_are_counted_or_unknown(tmp_path: Path, script: str, offered: int | None, why: str) -> None:
    program(tmp_path, "fi_info", f"#!/bin/sh\n{script}\n")
    assert state.offered_devices(Host(tmp_path))[0] == offered
    assert why in state.offered_devices(Host(tmp_path))[1]


def member(name: str, **fields: object) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    for field, value in fields.items():
        setattr(info, field, value)
    return info


def packed(folder: Path, *members: tarfile.TarInfo) -> str:
    path = folder / "x.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        for info in members:
            tar.addfile(info, io.BytesIO(b"x" * info.size))
    return str(path)


@pytest.mark.parametrize(
    ("info", "reason"),
    [
        (member("aws-efa-installer/../../etc/passwd"), "outside of aws-efa-installer"),
        (member("/etc/passwd"), "outside of aws-efa-installer"),
        (member("aws-efa-installer2/x"), "outside of aws-efa-installer"),
        (member("aws-efa-installer/x", type=tarfile.SYMTYPE, linkname="../../etc"), "a link to '../../etc'"),
        (member("aws-efa-installer/x", type=tarfile.SYMTYPE, linkname="/etc"), "a link to '/etc'"),
        (member("aws-efa-installer/x", type=tarfile.LNKTYPE, linkname="/etc/passwd"), "neither file nor folder"),
        (member("aws-efa-installer/x", type=tarfile.CHRTYPE), "neither file nor folder"),
    ],
)
def test_a_member_that_would_be_written_elsewhere_is_refused_before_all(
    tmp_path: Path, info: tarfile.TarInfo, reason: str
) -> None:
    path = packed(tmp_path, member("aws-efa-installer/first", size=1), info)
    with pytest.raises(BadArchive, match=reason):
        unpack(path, str(tmp_path / "to"), archive.TOP)
    assert not (tmp_path / "to").exists()


def test_a_member_below_a_link_is_refused(tmp_path: Path) -> None:
    link = member("aws-efa-installer/a/b/c", type=tarfile.SYMTYPE, linkname="../../d")
    below = member("aws-efa-installer/a/b/c/e", type=tarfile.SYMTYPE, linkname="../../../x")
    with pytest.raises(BadArchive, match="below a link"):
        unpack(packed(tmp_path, link, below), str(tmp_path / "to"), archive.TOP)


def test_members_lose_their_owner_and_special_rights(tmp_path: Path) -> None:
    path = packed(tmp_path, member("aws-efa-installer/run", mode=0o4777, uid=1234, size=1))
    unpack(path, str(tmp_path / "to"), archive.TOP)
    facts = (tmp_path / "to/aws-efa-installer/run").stat()
    assert (facts.st_mode & 0o7777, facts.st_uid) == (0o755, os.geteuid())


def test_half_an_archive_is_refused(tmp_path: Path) -> None:
    path = packed(tmp_path, member("aws-efa-installer/x", size=100_000))
    Path(path).write_bytes(Path(path).read_bytes()[:60])
    with pytest.raises(BadArchive, match="cannot be unpacked"):
        unpack(path, str(tmp_path / "to"), archive.TOP)


def signed_by_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "verify", lambda host, where, path: None)


@pytest.mark.parametrize(("version", "reason"), [("1.48.0", ""), ("1.47.0", "it is the installer 1.48.0, not 1.47.0")])
def test_an_archive_of_another_version_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, reason: str
) -> None:
    signed_by_nobody(monkeypatch)
    root, work = tmp_path / "host", tmp_path / "work"
    work.mkdir()
    (tmp_path / "aws-efa-installer").mkdir()
    (tmp_path / "aws-efa-installer/env.sh").write_text('EFA_INSTALLER_VERSION="1.48.0"\n')
    (tmp_path / "aws-efa-installer/efa_installer.sh").write_text("# stand-in\n")
    for name in ("aws-efa-installer.key", f"aws-efa-installer-{version}.tar.gz.sig"):
        put(root, f"/mirror/{name}", "x")
    with tarfile.open(root / f"mirror/aws-efa-installer-{version}.tar.gz", "w:gz") as tar:
        tar.add(tmp_path / "aws-efa-installer", "aws-efa-installer")
    obtain: Callable[[], str] = lambda: archive.obtain(  # noqa: E731
        Host(root), source.Source("file:/mirror", ()), version, str(work)
    )
    if reason:
        with pytest.raises(BadArchive, match=reason):
            obtain()
    else:
        assert Path(obtain(), "efa_installer.sh").exists()


def test_undo_says_beforehand_what_cannot_be_had(tmp_path: Path) -> None:
    host = Host(tmp_path)
    (tmp_path / "tmp").mkdir()
    put(tmp_path, source.PATH, source.Source("file:/mirror", ("A" * 40,)).text)
    back = Step(efa.SETTING, "1.48.0 full", "1.47.0 full")
    assert "installer 1.47.0 of EFA cannot be had (/mirror/" in efa.unavailable(host, back)
    put(tmp_path, "/mirror/aws-efa-installer-1.47.0.tar.gz.sig", "x")
    assert efa.unavailable(host, back) == ""
    away = Step(efa.SETTING, "1.48.0 full", None)
    assert "installer 1.48.0 of EFA cannot be had" in efa.unavailable(host, away)
    put(tmp_path, f"{efa.KEPT}/{source.SCRIPT}", "")
    assert efa.unavailable(host, away) == ""


def test_what_an_installer_left_in_part_is_still_ours() -> None:
    mine = Owned("gpu_stack.efa", "gpu_stack", efa.SETTING, None, ("1.48.0 full",))
    assert mine.holds("1.47.0 full half-installed")
    assert mine.holds("1.48.0 full without-module")
    assert not mine.holds("1.50.0 full")
