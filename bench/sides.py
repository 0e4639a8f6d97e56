"""The sides of the comparison: what each runs, on which hosts, with which settings of its own."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench import peers
from bench.wanted import PROFILE, Setting

PEERS = Path(__file__).parents[1] / "build/peers/bin"
GPUCTL = str(Path(sys.executable).parent / "gpuctl")
TUNED = """[ssh_connection]
pipelining=True
ssh_args=-C -o ControlMaster=auto -o ControlPersist=600s
control_path_dir={folder}/cp
"""


@dataclass(frozen=True)
class Side:
    """One command line; `kept` is the file by which its settings survive a reboot, for the floor to read."""

    name: str
    argv: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    writes: bool = True


def sides(folder: Path, inventory: Path, settings: list[Setting], hosts: Mapping[str, str], forks: int) -> list[Side]:
    """Write what each side needs into a folder of its own making, and name the commands."""
    own = {f"GPUCTL_{name}_DIR": str(folder / name.lower()) for name in ("STATE", "CACHE", "CONFIG")}
    at = ["--inventory", str(inventory), "--profile", str(PROFILE)]
    found = [
        Side("gpuctl tune-nodes", [GPUCTL, "tune-nodes", *at], own),
        Side("gpuctl drift", [GPUCTL, "drift", *at], own, writes=False),
    ]
    for name, text, strategy in _configurations(folder, forks):
        (folder / f"{name}.cfg").write_text(text)
        (folder / f"{name}.yml").write_text(peers.playbook(settings, strategy))
        argv = [str(PEERS / "ansible-playbook"), "-i", str(inventory), str(folder / f"{name}.yml")]
        found.append(Side(name, argv, {"ANSIBLE_CONFIG": str(folder / f"{name}.cfg")}))
    (folder / "deploy.py").write_text(peers.deploy(settings))
    (folder / "inventory.py").write_text(f"hosts = {[(ip, _pyinfra_host(inventory)) for ip in hosts.values()]!r}\n")
    argv = [str(PEERS / "pyinfra"), "-y", "--parallel", str(forks), "inventory.py", "deploy.py"]
    return [*found, Side("pyinfra", argv)]


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
