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
        "host": "lab-gpu",
        "alias": "gpuctl-1",
        "key": "ssh-ed25519 AAAA",
        "root": False,
        "port": 2222,
        "known_hosts": "/home/a b/100%/known",
        "proxy": ["/opt/my tools/gpuctl", "--pod", "50%h;id"],
    }
    return HostEntry(**{**fields, **values})  # type: ignore[arg-type]


def resolved(config: Path) -> dict[str, str]:
    """Settings that ssh takes for the host."""
    done = subprocess.run(["ssh", "-F", str(config), "-G", "lab-gpu"], capture_output=True, text=True, check=True)
    return dict(line.split(" ", 1) for line in done.stdout.splitlines() if " " in line)


def test_ssh_reads_the_entry_before_the_users_own_settings(tmp_path: Path) -> None:
    (tmp_path / "lab.conf").write_text(ssh_files.entry(entry()))
    (tmp_path / "user").write_text("Host *\n  StrictHostKeyChecking no\n  User me\n  UserKnownHostsFile /dev/null\n")
    (tmp_path / "config").write_text(ssh_files.wrapper(f"{tmp_path}/*.conf", [str(tmp_path / "user")]))
    settings = resolved(tmp_path / "config")
    assert settings["stricthostkeychecking"] in ("true", "yes")
    assert (settings["user"], settings["port"], settings["hostkeyalias"]) == ("gpu", "2222", "gpuctl-1")
    assert settings["userknownhostsfile"] == "/home/a b/100%/known"
    assert settings["proxycommand"] == "'/opt/my tools/gpuctl' --pod '50%%h;id'"


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
    ],
)
def test_the_line_counts_before_the_first_host_only(config: str, included: bool) -> None:
    assert ssh_files.has_include(config, PATTERN) is included
    assert ssh_files.has_include(ssh_files.with_include(config, PATTERN), PATTERN)
    assert ssh_files.with_include(config, PATTERN).endswith(config)
