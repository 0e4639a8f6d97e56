"""Deploy through the playbook cluster_deploy.yml, as any Ansible user would, with progress for each step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuctl.cluster.deploy.model import Plan, digest
from gpuctl.cluster.environment import SINGLE
from gpuctl.core.errors import GpuctlError
from gpuctl.core.signals import ctrl_c
from gpuctl.domain.findings import Finding, Verdict
from gpuctl.edges import ansible
from gpuctl.edges.ansible_progress import progress_listener

PLAYBOOK = "gpuctl.fleet.cluster_deploy"


@dataclass(frozen=True)
class DeployRequest:
    """A confirmed plan to apply, including what it recreates."""

    file: Path
    plan: Plan
    context: str = ""
    timeout_s: int = 900


def deploy(request: DeployRequest, say: Callable[[str], None]) -> Mapping[str, Any]:
    """Run the playbook and return the module's result; raises `GpuctlError` with its message. Ctrl-C ends all of it."""
    plan, results = request.plan, list[ansible.HostResult]()
    with ansible.no_new_folder(), progress_listener(say), ctrl_c() as broken_off:
        wrong = ansible.run(play(request), results.append, broken_off)
    if broken_off():
        raise KeyboardInterrupt
    end = results[-1] if results else None
    result = end.result if end else None
    if result is None:
        message = (end.wrong if end else "") or wrong or "Ansible gave no answer"
        raise GpuctlError(f"deploy {plan.env.name}", message, end.hint if end else "")
    return answered(plan, result)


def answered(plan: Plan, result: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the module's `cluster` result; only the plan knows why the mode fell back, so it adds that."""
    if "error" in result:
        raise GpuctlError(f"deploy {plan.env.name}", result["error"]["wrong"], result["error"]["hint"])
    return {**result["cluster"], "fell_back": plan.fell_back}


def findings(done: Mapping[str, Any]) -> list[Finding]:
    """Parse the findings of the module's result."""
    return [Finding(**{**finding, "verdict": Verdict(finding["verdict"])}) for finding in done["findings"]]


def play(request: DeployRequest) -> ansible.Play:
    """Return the playbook's run with the plan's mode, number of pods and digest.

    The module plans again from the file and the cluster, and applies nothing if the digest differs: what was shown and
    confirmed is what is applied.
    """
    env = request.plan.env
    name = env.name.removesuffix(f"-{SINGLE}") if env.single else env.name
    variables = {
        "cluster_file": str(request.file),
        "cluster_mode": env.mode,
        "cluster_nodes": env.nodes,
        "cluster_environment": name,
        "cluster_single": env.single,
        "cluster_take_over": bool(request.plan.changes_of("take-over")),
        "cluster_recreate": bool(request.plan.changes_of("recreate")),
        "cluster_timeout": request.timeout_s,
        "cluster_context": request.context,
        "cluster_actor": env.actor,
        "cluster_plan": digest(request.plan),
    }
    return ansible.Play.on_this_machine(PLAYBOOK, variables)
