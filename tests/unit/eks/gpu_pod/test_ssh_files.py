"""Text of ssh's files, as OpenSSH itself reads it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from gpuctl.eks.gpu_pod import ssh_files
from gpuctl.eks.gpu_pod.ssh_files import HostEntry

PATTERN = "/home/me/.config/gpuctl/ssh/*.conf"
LINE = f'Include "{PATTERN}"'


def entry(**values: object) -> HostEntry:
    fields = {
        "host": "lab.gpu.default.us-west-2",
        "alias": "gpuctl-1",
        "key": "ssh-ed25519 AAAA",
        "root": False,
        "port": 2222,
        "known_hosts": "/home/a b/100%/known",
        "proxy": ["/opt/my tools/gpuctl", "--pod", "50%h;id"],
        "leads_to": "gpu in namespace default of lab (AWS account 123456789012, us-west-2)",
    }
    return HostEntry(**{**fields, **values})  # type: ignore[arg-type]


def resolved(config: Path) -> dict[str, str]:
    """Settings that ssh takes for the host."""
    done = subprocess.run(
        ["ssh", "-F", str(config), "-G", "lab.gpu.default.us-west-2"], capture_output=True, text=True, check=True
    )
    return dict(line.split(" ", 1) for line in done.stdout.splitlines() if " " in line)


USER = """Host *
  StrictHostKeyChecking no
  User me
  UserKnownHostsFile /dev/null
  ControlMaster auto
  ControlPath /tmp/%n
  KnownHostsCommand /bin/echo %H ssh-ed25519 AAAA
  IdentityFile /home/me/key
"""


def test_ssh_reads_the_entry_before_the_users_own_settings(tmp_path: Path) -> None:
    (tmp_path / "lab.conf").write_text(ssh_files.entry(entry()))
    (tmp_path / "config").write_text(ssh_files.with_include(USER, f"{tmp_path}/*.conf"))
    settings = resolved(tmp_path / "config")
    assert settings["stricthostkeychecking"] in ("true", "yes")
    assert (settings["user"], settings["port"], settings["hostkeyalias"]) == ("gpu", "2222", "gpuctl-1")
    assert settings["hostname"] == "gpuctl-1"
    assert settings["userknownhostsfile"] == "/home/a b/100%/known"
    assert settings["proxycommand"] == "'/opt/my tools/gpuctl' --pod '50%%h;id'"


def test_a_load_balancer_takes_the_place_of_the_proxy_and_its_host_key_is_checked_as_before(tmp_path: Path) -> None:
    (tmp_path / "config").write_text(ssh_files.entry(entry(address="k8s-1.elb.us-west-2.amazonaws.com")))
    settings = resolved(tmp_path / "config")
    assert (settings["hostname"], settings["port"]) == ("k8s-1.elb.us-west-2.amazonaws.com", "22")
    assert settings.get("proxycommand", "none") == "none"
    assert settings["stricthostkeychecking"] in ("true", "yes")
    assert settings["hostkeyalias"] == "gpuctl-1"
    assert int(settings["serveraliveinterval"]) < 350  # seconds of silence after which it drops a connection


def test_gpuctls_own_calls_share_no_connection_and_take_no_key_of_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "user").write_text(USER)
    (tmp_path / "config").write_text(
        ssh_files.private_config(entry(), [str(tmp_path / "user")], known_hosts_command=True)
    )
    settings = resolved(tmp_path / "config")
    assert settings["hostname"] == "gpuctl-1"
    assert settings["stricthostkeychecking"] in ("true", "yes")
    assert (settings["controlmaster"], settings["identityfile"]) == ("false", "/home/me/key")
    assert settings.get("controlpath", "none") == "none"
    assert settings.get("knownhostscommand", "none") == "none"
    assert "KnownHostsCommand" not in ssh_files.private_config(entry(), [], known_hosts_command=False)


def test_no_two_places_have_one_name() -> None:
    places = [("a-b", "c", "default", "eu"), ("a", "b-c", "default", "eu"), ("a", "b-c", "eu", "default")]
    assert len({ssh_files.host_name(place) for place in places}) == 3
    context = ssh_files.host_name(["lab", "gpu", "default", "arn:aws:eks:us-west-2:1:cluster/my.lab*"])
    assert context == "lab.gpu.default.arn_aws_eks_us-west-2_1_cluster_my_lab_"


def test_an_entry_names_the_place_to_which_it_leads() -> None:
    assert ssh_files.leads_to(ssh_files.entry(entry())) == entry().leads_to
    assert ssh_files.leads_to("Host a\n") == ""


def test_a_pod_that_runs_as_root_is_entered_as_root() -> None:
    assert "  User root\n" in ssh_files.entry(entry(root=True))


@pytest.mark.parametrize(
    ("config", "included"),
    [
        ("", False),
        (f"{LINE}\nHost *\n", True),
        (f"# mine\n\n{LINE}\n", True),
        (f"Host a\n  User b\n{LINE}\n", False),  # there it counts for host a alone
        (f"match=all\n{LINE}\n", False),
        (f"#{LINE}\n", False),
        (f"# mine\r\n{LINE}\r\nHost *\r\n", True),
        (f"# a\x85{LINE}\n", False),  # to ssh this is one comment
    ],
)
def test_the_line_counts_before_the_first_host_only(config: str, included: bool) -> None:
    assert ssh_files.has_include(config, PATTERN) is included
    assert ssh_files.has_include(ssh_files.with_include(config, PATTERN), PATTERN)
    assert ssh_files.with_include(config, PATTERN).endswith(config)
