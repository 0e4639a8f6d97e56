"""Resolved transactions of apt and dnf, and the one version that the driver's parts must have."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuctl.domain.findings import Finding, Verdict
from gpuctl.gpu_node import transaction
from gpuctl.gpu_node.knowledge import knowledge
from gpuctl.gpu_node.package_check import judge_transaction
from gpuctl.gpu_node.transaction import Transaction
from gpuctl.gpu_node.version import driver_version, upstream

DATA = Path(__file__).parents[2] / "data/gpu_stack"
PARTS = knowledge().one_version
END = "0 upgraded, 1 newly installed, 0 to remove and 0 not upgraded.\n"


def text(name: str) -> str:
    return (DATA / name).read_text()


def judge(change: Transaction, installed: dict[str, str] | None, driver: str) -> list[Finding]:
    return judge_transaction("node-1", change, installed, driver_version(driver) or int(driver), PARTS)


def test_apt_installs_upgrades_and_removes() -> None:
    change = transaction.apt(text("apt_s_ubuntu_upgrade.txt"))
    assert change.installs == {
        "nvidia-dkms-580-open": "580.990.04-1ubuntu1",
        "nvidia-modprobe": "580.990.04-1ubuntu1",
    }
    assert change.removes == {"nvidia-dkms-570-open": "570.990.01-1ubuntu1"}


def test_dnf_has_epochs_and_what_is_replaced_or_removed() -> None:
    change = transaction.dnf(text("dnf_assumeno_upgrade.txt"))
    assert change.installs == {
        "kmod-nvidia-open-dkms": "3:580.990.04-1.el9",
        "nvidia-driver-cuda": "3:580.990.04-1.el9",
        "nvidia-fabricmanager": "3:580.990.04-1.el9",
        "nvidia-persistenced": "3:580.990.02-1.el9",
        "dkms": "3.2.2-1.el9",
    }
    assert change.removes == {
        "nvidia-fabric-manager": "3:570.990.01-1.el9",
        "kmod-nvidia-latest-dkms": "3:570.990.01-1.el9",
    }


def test_dnf_enables_a_module_stream() -> None:
    change = transaction.dnf(text("dnf_assumeno_stream.txt"))
    assert (change.installs, change.streams) == ({}, {"nvidia-driver": "580-open"})


def test_an_older_dnf_wraps_a_row_after_a_long_name() -> None:
    head = " Package  Arch  Version  Repository  Size\nInstalling:\n"
    row = " nvidia-a-package-with-a-long-name\n      x86_64 3:580.990.04-1.el9   cuda-rhel9     29 M\n"
    change = transaction.dnf(f"{head}{row}\nTransaction Summary\n")
    assert change.installs == {"nvidia-a-package-with-a-long-name": "3:580.990.04-1.el9"}


def test_dnfs_problems_are_its_reason() -> None:
    with pytest.raises(transaction.Unresolvable, match="conflicts with kmod-nvidia-latest-dkms provided by"):
        transaction.dnf(text("dnf_assumeno_conflict.txt"))


def test_apts_unmet_dependencies_are_its_reason() -> None:
    output = (
        "The following packages have unmet dependencies:\n"
        " nvidia-open-kernel-dkms : Depends: firmware-nvidia-gsp (= 535.261.03) or\n"
        "                                    firmware-nvidia-gsp-535.261.03\n"
        "E: Unable to correct problems, you have held broken packages.\n"
    )
    with pytest.raises(transaction.Unresolvable, match=r"broken packages.; .*-gsp \(= 535.261.03\)"):
        transaction.apt(output)


def test_nothing_to_do_is_an_empty_transaction() -> None:
    nothing = Transaction({}, {}, {})
    assert transaction.apt("0 upgraded, 0 newly installed, 0 to remove and 4 not upgraded.\n") == nothing
    assert transaction.dnf("Dependencies resolved.\nNothing to do.\nComplete!\n") == nothing


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        ("", "not whole"),
        ("Inst nvidia-driver (580.1-1 X:1/y [amd64])\n", "not whole"),
        (f"Inst nvidia-driver\n{END}", "unknown form: Inst nvidia-driver"),
        ("E: Unable to locate package nvidia-imex-580\n", "Unable to locate package nvidia-imex-580"),
        ("E: Unmet dependencies.\n" + END, "Unmet dependencies"),
    ],
)
def test_output_of_apt_that_is_no_whole_transaction_is_refused(output: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        transaction.apt(output)


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        ("", "no summary"),
        ("Error: Unable to find a match: nvidia-imex\n", "Unable to find a match"),
        ("Dependencies resolved.\nTransaction Summary\n", "no table"),
        (" Package  Arch  Version  Repository  Size\nGuessing:\nTransaction Summary\n", "unknown section: Guessing"),
        (
            " Package  Arch  Version  Repository  Size\nInstalling:\n a b c\nTransaction Summary\n",
            "unknown form: a b c",
        ),
        (" Package  Arch  Version  Repository  Size\nInstalling:\n long\nTransaction Summary\n", "unknown form: long"),
    ],
)
def test_output_of_dnf_that_is_no_whole_transaction_is_refused(output: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        transaction.dnf(output)


def test_debian_12s_own_set_is_refused_with_its_three_versions() -> None:
    [finding] = judge(transaction.apt(text("apt_s_debian12_three_versions.txt")), {}, "535.309.01")
    assert finding.verdict is Verdict.FAIL
    assert finding.message == (
        "3 versions in one set: driver 535.309.01; open module 535.261.03; persistenced 535.171.04"
    )
    assert finding.hint
    assert finding.source


def test_a_transitional_package_of_another_branch_is_refused() -> None:
    [finding] = judge(transaction.apt(text("apt_s_transitional.txt")), {}, "580.990.04")
    assert (finding.check, finding.verdict) == ("branch", Verdict.FAIL)
    assert "nvidia-fabricmanager-535 resolves to 580.990.04-0ubuntu0.24.04.1" in finding.message


def test_dnfs_persistenced_one_build_behind_is_refused() -> None:
    installed = {"nvidia-fabric-manager": "3:570.990.01-1.el9", "kmod-nvidia-latest-dkms": "3:570.990.01-1.el9"}
    [finding] = judge(transaction.dnf(text("dnf_assumeno_upgrade.txt")), installed, "580.990.04")
    assert finding.message == (
        "2 versions in one set: open module, driver, fabric manager 580.990.04; persistenced 580.990.02"
    )


def test_an_installed_fabric_manager_that_stays_behind_is_refused() -> None:
    change = Transaction({"nvidia-driver-cuda": "3:580.178.04-1.el9"}, {}, {})
    [finding] = judge(change, {"nvidia-fabricmanager": "580.105.08-1", "bash": "5.2"}, "580.178.04")
    assert "fabric manager 580.105.08" in finding.message


def test_a_removed_package_no_longer_counts() -> None:
    change = Transaction({"nvidia-driver-cuda": "3:580.178.04-1.el9"}, {"nvidia-fabricmanager": "580.105.08-1"}, {})
    [finding] = judge(change, {"nvidia-fabricmanager": "580.105.08-1"}, "580.178.04")
    assert finding.verdict is Verdict.OK


@pytest.mark.parametrize(
    ("installs", "driver", "verdict"),
    [
        ({"nvidia-dkms-open": "595.91.07-1", "nvlsm": "2025.10.11-1"}, "595.91.07", Verdict.OK),
        ({"nvidia-dkms-open": "595.91.07-1"}, "595", Verdict.OK),
        ({"nvidia-dkms-open": "595.91.07-1"}, "595.71.05", Verdict.FAIL),
        ({"nvidia-dkms-open": "595.91.07-1"}, "580", Verdict.FAIL),
        ({"nvidia-dkms-open": "current"}, "580", Verdict.UNKNOWN),
        ({"bash": "5.2"}, "580", Verdict.UNKNOWN),
    ],
)
def test_the_set_has_the_requested_version(installs: dict[str, str], driver: str, verdict: Verdict) -> None:
    assert [finding.verdict for finding in judge(Transaction(installs, {}, {}), {}, driver)] == [verdict]


def test_unread_packages_are_unknown() -> None:
    assert judge(Transaction({}, {}, {}), None, "580")[0].verdict is Verdict.UNKNOWN


def test_versions_are_compared_by_number() -> None:
    versions = [driver_version(text) for text in ("570.26", "570.133.20", "580.65.06", "580.178.04")]
    assert sorted(versions, key=str) != versions
    assert sorted(version for version in versions if version) == versions
    assert driver_version("580") is driver_version("580.x") is None
    assert str(upstream("3:580.178.04-1.el9")) == "580.178.04"
    assert upstream("2025.10.11-1") is None
