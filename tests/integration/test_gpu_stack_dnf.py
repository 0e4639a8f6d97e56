"""Versions and transactions of a real dnf: with epochs, module streams, obsoletes, and reasons of a refusal."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.facts import package_lists, transaction
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.host import Host

from gpuctl.domain.findings import Verdict
from gpuctl.gpu_node import transaction as transactions
from gpuctl.gpu_node.knowledge import knowledge
from gpuctl.gpu_node.package_check import judge_transaction
from gpuctl.gpu_node.transaction import Transaction
from gpuctl.gpu_node.version import driver_version
from tests.rig.rpm_repository import MISSING, Rpm, RpmRoot

pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"the packages dnf, rpm and createrepo-c: no {MISSING}")

DRIVER = [Rpm("nvidia-driver-cuda", "580.178.04"), Rpm("kmod-nvidia-open-dkms", "580.178.04", more="Requires: dkms")]
OTHERS = [
    Rpm("dkms", "3.2.2", epoch=0),
    Rpm("nvidia-persistenced", "580.105.08"),
    Rpm("nvidia-driver-cuda", "580.105.08"),
    Rpm("nvidia-fabricmanager", "580.178.04", more="Obsoletes: nvidia-fabric-manager < 3:580"),
    Rpm("nvidia-imex", "580.178.04", more="Requires: of-no-repository"),
    Rpm("nvidia-open-only", "580.178.04", more="Conflicts: kmod-nvidia-latest-dkms"),
    Rpm("nvidia-driver-follows", "580.178.04", more="Requires: nvidia-persistenced = 3:580.105.08"),
]
OLD = [
    Rpm("nvidia-fabric-manager", "570.86.15"),
    Rpm("kmod-nvidia-latest-dkms", "570.86.15", more="Provides: kmod-old"),
]


@pytest.fixture(scope="module")
def rpm_root(tmp_path_factory: pytest.TempPathFactory) -> RpmRoot:
    """A host of RHEL's kind with fabric manager and the proprietary module of branch 570, and a repository with 580."""
    root = RpmRoot(tmp_path_factory.mktemp("dnf"))
    root.offer(OLD)
    root.dnf("install", *(package.name for package in OLD))
    root.offer([*DRIVER, *OTHERS], "nvidia-driver:580-open", DRIVER)
    return root


def resolve(root: RpmRoot, *packages: str, hotfixes: bool = True) -> Transaction:
    facts = transaction.read(Host(root.root), {"packages": list(packages), "hotfixes": hotfixes})
    assert facts["unread"] == {}
    return transactions.dnf(facts["output"])


def test_versions_have_epochs_newest_first_also_of_a_module_stream(rpm_root: RpmRoot) -> None:
    offered = package_lists.offered(Host(rpm_root.root), ["nvidia-driver-cuda", "dkms", "nvlsm"], "5.14.0")
    assert offered == {
        "nvidia-driver-cuda": ["3:580.178.04-1.el9", "3:580.105.08-1.el9"],
        "dkms": ["3.2.2-1.el9"],
        "nvlsm": [],
    }


def test_a_transaction_has_dependencies_and_removals(rpm_root: RpmRoot) -> None:
    change = resolve(rpm_root, "kmod-nvidia-open-dkms-3:580.178.04-1.el9", "nvidia-fabricmanager-3:580.178.04-1.el9")
    assert change.installs == {
        "kmod-nvidia-open-dkms": "3:580.178.04-1.el9",
        "nvidia-fabricmanager": "3:580.178.04-1.el9",
        "dkms": "3.2.2-1.el9",
    }
    assert change.removes == {"nvidia-fabric-manager": "3:570.86.15-1.el9"}


def test_a_dependency_of_another_version_is_refused(rpm_root: RpmRoot) -> None:
    change = resolve(rpm_root, "nvidia-driver-cuda-3:580.178.04-1.el9", "nvidia-driver-follows-3:580.178.04-1.el9")
    version = driver_version("580.178.04")
    assert version
    [finding] = judge_transaction("node-1", change, {}, version, knowledge().one_version)
    assert finding.verdict is Verdict.FAIL
    assert finding.message == "2 versions in one set: driver 580.178.04; persistenced 580.105.08"


@pytest.mark.parametrize(
    ("package", "hotfixes", "reason"),
    [
        ("nvidia-imex-3:580.178.04-1.el9", True, "nothing provides of-no-repository needed by nvidia-imex"),
        ("nvidia-gone", True, "Unable to find a match: nvidia-gone"),
        # Without the stream, its packages are hidden.
        ("kmod-nvidia-open-dkms-3:580.178.04-1.el9", False, "Unable to find a match"),
    ],
)
def test_what_dnf_cannot_resolve_has_its_reason(rpm_root: RpmRoot, package: str, hotfixes: bool, reason: str) -> None:
    with pytest.raises(transactions.Unresolvable, match=reason):
        resolve(rpm_root, package, hotfixes=hotfixes)


def test_a_driver_of_the_other_flavour_goes_with_its_removal_named(rpm_root: RpmRoot) -> None:
    change = resolve(rpm_root, "nvidia-open-only-3:580.178.04-1.el9")
    assert change.installs == {"nvidia-open-only": "3:580.178.04-1.el9"}
    assert change.removes == {"kmod-nvidia-latest-dkms": "3:570.86.15-1.el9"}


def test_nothing_of_the_host_changes(rpm_root: RpmRoot) -> None:
    for cache in (rpm_root.root / "var/cache/dnf").glob("*.solv*"):
        cache.unlink()  # dnf writes them again whenever it is asked anything
    before = contents(rpm_root.root)
    package_lists.offered(Host(rpm_root.root), ["nvidia-driver-cuda"], "5.14.0")
    resolve(rpm_root, "nvidia-driver-cuda-3:580.178.04-1.el9")
    assert contents(rpm_root.root) == before


def contents(root: Path) -> dict[str, bytes | None]:
    """Every file and folder, without those that --installroot, which a host does not use, repeats below its root."""
    paths = (path for path in root.rglob("*") if not path.is_relative_to(root / str(root.parents[-2])[1:]))
    return {str(path.relative_to(root)): path.read_bytes() if path.is_file() else None for path in paths}
