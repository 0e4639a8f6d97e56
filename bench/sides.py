"""The sides of the comparison: their command lines and configuration files."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench import peers
from bench.settings import PROFILE, Setting

PEERS = Path(__file__).parents[1] / "build/peers/bin"
GPUCTL = str(Path(sys.executable).parent / "gpuctl")
TUNED = """[ssh_connection]
pipelining=True
ssh_args=-C -o ControlMaster=auto -o ControlPersist=600s
control_path_dir={folder}/cp
"""


@dataclass(frozen=True)
class Side:
    """One command line with its environment; `writes`: it changes hosts."""

    name: str
    argv: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    writes: bool = True


def sides(folder: Path, inventory: Path, settings: list[Setting], hosts: Mapping[str, str], forks: int) -> list[Side]:
    """Write the files of all sides to a folder, and return their commands; without peers that are not installed."""
    folders = {f"GPUCTL_{name}_DIR": str(folder / name.lower()) for name in ("STATE", "CACHE", "CONFIG")}
    at = ["--inventory", str(inventory), "--profile", str(PROFILE)]
    result = [
        Side("gpuctl tune-nodes", [GPUCTL, "tune-nodes", *at], folders),
        Side("gpuctl tune-nodes --via ssh", [GPUCTL, "tune-nodes", "--via", "ssh", *at], folders),
        Side("gpuctl drift", [GPUCTL, "drift", *at], folders, writes=False),
    ]
    if not PEERS.exists():
        return result
    for name, text, strategy in _configurations(folder, forks):
        (folder / f"{name}.cfg").write_text(text)
        (folder / f"{name}.yml").write_text(peers.playbook(settings, strategy))
        argv = [str(PEERS / "ansible-playbook"), "-i", str(inventory), str(folder / f"{name}.yml")]
        result.append(Side(name, argv, {"ANSIBLE_CONFIG": str(folder / f"{name}.cfg")}))
    (folder / "deploy.py").write_text(peers.deploy(settings))
    (folder / "inventory.py").write_text(f"hosts = {[(ip, _pyinfra_host(inventory)) for ip in hosts.values()]!r}\n")
    argv = [str(PEERS / "pyinfra"), "-y", "--parallel", str(forks), "inventory.py", "deploy.py"]
    return [*result, Side("pyinfra", argv)]


def _configurations(folder: Path, forks: int) -> list[tuple[str, str, str]]:
    mitogen = next(PEERS.parent.glob("lib/python3*/site-packages/ansible_mitogen/plugins/strategy"))
    tuned = TUNED.format(folder=folder)
    return [
        ("Ansible, defaults", "[defaults]\n", "linear"),
        ("Ansible, tuned", f"[defaults]\nforks={forks}\n{tuned}", "linear"),
        ("mitogen", f"[defaults]\nforks={forks}\nstrategy_plugins={mitogen}\n{tuned}", "mitogen_linear"),
    ]


def _pyinfra_host(inventory: Path) -> dict[str, str]:
    state = inventory.parent
    return {"ssh_user": "root", "ssh_key": f"{state}/id_ed25519", "ssh_known_hosts_file": f"{state}/known_hosts"}
