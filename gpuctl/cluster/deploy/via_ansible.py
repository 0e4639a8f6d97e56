"""Deploys by the playbook cluster_deploy.yml, as anybody with Ansible would, and hears of each step as it is made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuctl.cluster.deploy.model import Plan
from gpuctl.cluster.environment import SINGLE
from gpuctl.core.errors import GpuctlError
from gpuctl.core.paths import collection_dir
from gpuctl.core.signals import ctrl_c
from gpuctl.domain.findings import Finding, Verdict
from gpuctl.edges import ansible
from gpuctl.edges.ansible_progress import progress_listener

PLAYBOOK = "gpuctl.fleet.cluster_deploy"


@dataclass(frozen=True)
class Order:
    """What the playbook is to do: a plan that somebody has seen, and agreed to what it makes anew."""

    file: Path
    plan: Plan
    context: str = ""
    timeout_s: int = 900


def deploy(order: Order, say: Callable[[str], None]) -> Mapping[str, Any]:
    """What the module answered; `GpuctlError` in its words where it failed. Ctrl-C ends all of it."""
    plan, told = order.plan, list[ansible.HostResult]()
    with ansible.no_new_folder(), progress_listener(say), ctrl_c() as broken_off:
        wrong = ansible.run(play(order), told.append, broken_off)
    if broken_off():
        raise KeyboardInterrupt
    end = told[-1] if told else None
    result = end.result if end else None
    if result is None:
        said = (end.wrong if end else "") or wrong or "Ansible gave no answer"
        raise GpuctlError(f"deploy {plan.env.name}", said, end.hint if end else "")
    return answered(plan, result)


def answered(plan: Plan, result: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the module tells of the cluster. It was given a mode that is settled: why, only the plan knows."""
    if "error" in result:
        raise GpuctlError(f"deploy {plan.env.name}", result["error"]["wrong"], result["error"]["hint"])
    return {**result["cluster"], "fell_back": plan.fell_back}


def findings(done: Mapping[str, Any]) -> list[Finding]:
    """Those of the module's answer."""
    return [Finding(**{**each, "verdict": Verdict(each["verdict"])}) for each in done["findings"]]


def play(order: Order) -> ansible.Play:
    """The playbook with the plan's mode and number of pods.

    The module reads the file and the cluster again, so what has changed since is deployed as it is by then. It makes
    objects anew only if the plan made any anew.
    """
    env = order.plan.env
    name = env.name.removesuffix(f"-{SINGLE}") if env.single else env.name
    given = {
        "cluster_file": str(order.file),
        "cluster_mode": env.mode,
        "cluster_nodes": env.nodes,
        "cluster_environment": name,
        "cluster_single": env.single,
        "cluster_recreate": bool(order.plan.changes_of("recreate")),
        "cluster_timeout": order.timeout_s,
        "cluster_context": order.context,
        "cluster_by": env.by,
    }
    return ansible.Play(
        playbook=PLAYBOOK,
        inventory=collection_dir() / "inventories" / "localhost",
        hosts=["localhost"],
        variables=given,
        files={},
        file_of={},
        forks=1,
    )
