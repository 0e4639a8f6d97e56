"""What goes wrong with some hosts, or with what was given: told by name, with the reason, and nobody else stopped."""

from __future__ import annotations

import resource
import subprocess
from pathlib import Path

import pytest

from tests.integration.conftest import Hosts
from tests.rig import Rig, TestHost
from tests.rig.command import GPUCTL, Gpuctl, reach
from tests.rig.ground import sh
from tests.rig.needs import ordinary_rights
from tests.rig.reports import valid_json, valid_metrics

FEW = {"sysctl.vm.swappiness": 1, "thp.enabled": "never"}


@pytest.fixture
def strange_hosts(rig: Rig, hosts: Hosts) -> list[TestHost]:
    """Nine hosts, one whose disk is read-only, one without Python, and one that nobody reaches."""
    good = hosts(9, machine="generic")
    rig.up(["frozen"], machine="generic", readonly=True)
    rig.up(["snakeless"], machine="generic", python=False)
    (gone,) = rig.up(["gone"], machine="generic")
    gone.pause()
    return good


def worst_severities(metrics: Path) -> dict[str, float]:
    """The worst severity of each host in a file of metrics."""
    worst: dict[str, float] = {}
    for labels, value in valid_metrics(metrics.read_text())["gpuctl_check_severity"]:
        host = labels["subject"]
        worst[host] = max(value, worst.get(host, 0))
    return worst


def test_three_of_twelve_hosts_fail_and_nine_are_tuned(gpuctl: Gpuctl, rig: Rig, strange_hosts: list[TestHost]) -> None:
    way = ("-i", rig.inventory(), "-p", gpuctl.profile(FEW))
    metrics = gpuctl.home / "metrics.prom"
    compared = gpuctl("drift", *way, "--limit", "frozen", "--metrics", metrics)
    assert (compared.code, "its disk is read-only: nothing can be changed" in compared.out) == (1, True)
    assert worst_severities(metrics)["frozen"] > 0
    said = gpuctl("tune-nodes", *way, "-o", "json", "--metrics", metrics)
    assert said.code == 3
    assert valid_json(said.out)["findings"]
    worst = worst_severities(metrics)
    assert (worst["frozen"], worst[strange_hosts[0].name]) == (2, 0)  # nothing is known of the settings of frozen
    assert [said.hosts[host.name]["status"] for host in strange_hosts] == ["changed"] * 9
    assert [host.read("/proc/sys/vm/swappiness") for host in strange_hosts] == ["1\n"] * 9
    wrong = {name: (host["status"], host["error"]["wrong"]) for name, host in said.hosts.items() if host["error"]}
    assert wrong.keys() == {"frozen", "snakeless", "gone"}
    assert wrong["frozen"] == ("failed", "its disk cannot be written")
    assert wrong["snakeless"][0] == "failed"
    assert wrong["snakeless"][1].startswith("it has no /usr/bin/python3")
    assert wrong["gone"][0] == "unreachable"
    assert wrong["gone"][1].startswith("it cannot be reached")


def test_each_way_of_not_getting_in_has_its_own_words(gpuctl: Gpuctl, host: TestHost) -> None:
    _sudo_asks(host, "asked")
    sh("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", gpuctl.home / "other")
    other = (gpuctl.home / "other.pub").read_text()
    (gpuctl.home / "changed").write_text(f"{host.ip} {other}")
    ways = {
        "another-key": reach(host, ansible_private_key_file=str(gpuctl.home / "other")),
        "changed": reach(host, ansible_ssh_common_args=f"-o UserKnownHostsFile={gpuctl.home}/changed"),
        "unknown": reach(host, ansible_ssh_common_args=f"-o UserKnownHostsFile={gpuctl.home}/empty"),
        "no-root": reach(host, ansible_user="admin"),
        "no-sudo": reach(host, ansible_user="nosudo", ansible_become=True),
        "asked": reach(host, ansible_user="asked", ansible_become=True),
        "python": reach(host, ansible_python_interpreter="/opt/python9"),
        "nowhere": reach(host, ansible_host="gpu-1.invalid"),
    }
    said = gpuctl("tune-nodes", "-i", gpuctl.inventory(ways), "-p", gpuctl.profile(FEW), "-o", "json")
    assert said.code == 3
    told = {name: (way["status"], way["error"]["wrong"].partition(" (")[0]) for name, way in said.hosts.items()}
    assert told == {
        "another-key": ("unreachable", "it does not let us log in"),
        "changed": ("unreachable", "its host key has changed"),
        "unknown": ("unreachable", "its host key is not known"),
        "no-root": ("failed", "this needs root on the host"),
        "no-sudo": ("failed", "sudo wants a password"),  # what `sudo -n` says of strangers, too
        "asked": ("failed", "sudo wants a password"),
        "python": ("failed", "it has no /opt/python9"),
        "nowhere": ("unreachable", "its name cannot be resolved"),
    }
    assert all(way["error"]["hint"] for way in said.hosts.values())
    assert host.tree.writes() == []


def test_a_changed_host_key_is_refused_through_ansible_too(gpuctl: Gpuctl, host: TestHost) -> None:
    sh("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", gpuctl.home / "other")
    (gpuctl.home / "changed").write_text(f"{host.ip} {(gpuctl.home / 'other.pub').read_text()}")
    exposed_ports = reach(host, ansible_ssh_common_args=f"-o UserKnownHostsFile={gpuctl.home}/changed")
    inventory = gpuctl.inventory({"changed": exposed_ports})
    said = gpuctl("tune-nodes", "-i", inventory, "-p", gpuctl.profile(FEW), "--via", "ansible", "-o", "json")
    assert said.code == 3
    assert said.hosts["changed"]["status"] == "unreachable"
    assert said.hosts["changed"]["error"]["wrong"].startswith("its host key has changed")
    assert host.tree.writes() == []


def test_a_sudo_password_of_the_inventory_goes_through_ansible(gpuctl: Gpuctl, host: TestHost) -> None:
    _sudo_asks(host, "asked")
    asked = reach(host, ansible_user="asked", ansible_become=True, ansible_become_password="correct horse")  # noqa: S106
    inventory = gpuctl.inventory({"box": asked, "mistyped": {**asked, "ansible_become_password": "wrong"}})
    said = gpuctl("tune-nodes", "-i", inventory, "-p", gpuctl.profile(FEW), "-o", "json")
    assert said.hosts["box"]["status"] == "changed"
    assert said.hosts["mistyped"]["status"] == "failed"
    assert "sudo password" in said.hosts["mistyped"]["error"]["wrong"]
    assert said.code == 3
    written = [path.read_text(errors="replace") for path in gpuctl.home.rglob("*.json")]
    assert len(written) >= 1
    assert not any("correct horse" in text for text in [said.out, said.err, *written])


BAD_INVENTORIES = {
    "all: [this, is, no, inventory": "arse",
    "all: {hosts: {}}": "it has no hosts",
}


@pytest.mark.parametrize(("text", "wrong"), BAD_INVENTORIES.items())
def test_a_bad_or_empty_inventory_is_refused(gpuctl: Gpuctl, tmp_path: Path, text: str, wrong: str) -> None:
    inventory = tmp_path / "hosts.yml"
    inventory.write_text(text)
    said = gpuctl("tune-nodes", "--inventory", inventory)
    assert said.code == 2
    assert said.err.startswith(f"gpuctl: cannot read the inventory {inventory}: ")
    assert wrong in said.err
    assert "hint: " in said.err


@pytest.mark.parametrize("source", ["hosts.yml", "."])
def test_a_file_of_the_inventory_that_the_user_may_not_read_is_named(
    gpuctl: Gpuctl, tmp_path: Path, source: str
) -> None:
    folder = tmp_path / "inventory"
    folder.mkdir()
    (folder / "hosts.yml").write_text("all: {hosts: {a: {}}}")
    (folder / "hosts.yml").chmod(0)
    argv = [*ordinary_rights(), str(GPUCTL), "drift", "--inventory", str(folder / source)]
    done = subprocess.run(argv, env=gpuctl.environment(), cwd=gpuctl.home, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert f"{folder}/hosts.yml: permission denied" in done.stderr
    assert "hint: make it readable for you" in done.stderr


def test_a_link_to_a_missing_file_in_the_inventory_is_named(gpuctl: Gpuctl, tmp_path: Path) -> None:
    folder = tmp_path / "inventory"
    folder.mkdir()
    (folder / "hosts.yml").write_text("all: {hosts: {a: {}}}")
    (folder / "#hosts.yml").symlink_to("user@laptop.4711:1")
    said = gpuctl("drift", "--inventory", folder)
    assert said.code == 2
    assert f"{folder}/#hosts.yml: a link to a missing file" in said.err


def test_a_pattern_that_names_no_host_is_refused(gpuctl: Gpuctl) -> None:
    inventory = gpuctl.inventory({"gpu-1": {}})
    said = gpuctl("tune-nodes", "--inventory", inventory, "--limit", "gpu-2*")
    assert said.code == 2
    assert "gpu-2*" in said.err
    assert "hint: " in said.err


def test_a_profile_with_mistakes_is_refused_whole_before_any_host_is_asked(gpuctl: Gpuctl) -> None:
    profile = gpuctl.profile({"sysctl.vm.swappiness": "much", "thp.enabld": "never", "cpu.boost": "on"})
    said = gpuctl("tune-nodes", "--inventory", gpuctl.inventory({"gpu-1": {}}), "--profile", profile)
    assert said.code == 2
    assert f"{profile}:" in said.err
    assert "sysctl.vm.swappiness must be a whole number" in said.err
    assert "did you mean thp.enabled?" in said.err
    assert "gpu-1" not in said.err


def _sudo_asks(host: TestHost, user: str) -> None:
    """A user whose sudo wants the password "correct horse"."""
    host.run("useradd", "--create-home", "--shell", "/bin/bash", user)
    host.run("chpasswd", input=f"{user}:correct horse\n")
    host.write(f"/etc/sudoers.d/{user}", f"{user} ALL=(ALL) ALL\n", mode=0o440)


FOREVER = "#!/bin/sh\nexec yes 'this login shell prints without end'\n"
NONSENSE = """#!/bin/sh
# Stands in for a python that answers, with the token of the request, what no engine would answer.
token=$(grep -m 1 -ao 'gpuctl-[0-9a-f]* ' | head -n 1)
printf '\\n%s%s\\n' "$token" '{"form": 99}'
"""


@pytest.mark.parametrize("way", ["ssh", "ansible"])
def test_a_host_that_prints_without_end_fails_alone_and_costs_little_memory(
    gpuctl: Gpuctl, hosts: Hosts, way: str
) -> None:
    good, endless = hosts(2, machine="generic")
    endless.write("/usr/local/bin/endless", FOREVER)
    endless.run("chmod", "755", "/usr/local/bin/endless")
    endless.run("usermod", "--shell", "/usr/local/bin/endless", "admin")
    # While Ansible waits for sudo, it reads so slowly that the test would take minutes.
    admin = reach(endless, ansible_user="admin", ansible_become=way == "ssh")
    ways = {good.name: reach(good), "endless": admin}
    # A child is as large as this process until it becomes the program.
    usual = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_CHILDREN, resource.RUSAGE_SELF))
    words = ("-i", gpuctl.inventory(ways), "-p", gpuctl.profile(FEW), "--via", way, "-o", "json")
    said = gpuctl("tune-nodes", *words)
    assert said.code == 3
    assert said.hosts[good.name]["status"] == "changed"
    assert said.hosts["endless"]["status"] == "failed"
    assert said.hosts["endless"]["error"]["wrong"].startswith("it printed more than")
    assert "login shell" in str(said.hosts["endless"]["error"])
    # The largest process of all that ran, in KiB.
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss <= max(usual, 1024 * 1024)


@pytest.mark.parametrize("way", ["ssh", "ansible"])
def test_a_host_that_answers_nonsense_fails_alone(gpuctl: Gpuctl, hosts: Hosts, way: str) -> None:
    good, odd = hosts(2, machine="generic")
    odd.write("/usr/local/bin/standin-python", NONSENSE)
    odd.run("chmod", "755", "/usr/local/bin/standin-python")
    ways = {
        good.name: reach(good),
        "odd": reach(odd, ansible_python_interpreter="/usr/local/bin/standin-python"),
    }
    words = ("-i", gpuctl.inventory(ways), "-p", gpuctl.profile(FEW), "--via", way, "-o", "json")
    said = gpuctl("tune-nodes", *words)
    assert said.code == 3
    assert said.hosts[good.name]["status"] == "changed"
    assert said.hosts["odd"]["error"]["wrong"] == "its answer has form 99, this gpuctl reads 1"
