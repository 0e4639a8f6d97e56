"""Audit of the GPU nodes of a Kubernetes cluster: each by a short-lived pod, with the state that the API has of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.domain import kube_nodes
from gpuctl.edges.kube import cluster as kube
from gpuctl.hosts.model import HostResult, Target
from gpuctl.nccl.preflight.facts_file import Fleet
from gpuctl.workflows import nodes_kube_probe
from gpuctl.workflows.audit import AuditOptions, question
from gpuctl.workflows.audit_slurm import Selection
from gpuctl.workflows.nodes_kube_probe import ProbeRequest
from gpuctl.workflows.preflight_facts import fleet_of

_DOING = "audit the nodes of {}"


def select(context: str, namespace: str) -> Selection:
    """GPU nodes of the cluster, with findings on their states.

    `InvalidInput` if there are none, `GpuctlError` without the right to make pods in the namespace.
    """
    cluster, doing = kube.connect(context, namespace), _DOING.format(context)
    nodes = [node for node in cluster.find(cluster.kind("v1", "Node"), {}) if kube_nodes.has_gpus(node)]
    if not nodes:
        wrong = "no node offers GPUs, or has a label of one with GPUs"
        raise InvalidInput(doing, wrong, "does the GPU device plugin or feature discovery run? `kubectl get nodes`")
    if why := nodes_kube_probe.refused(cluster):
        raise GpuctlError(doing, why, "ask for it, name another --namespace, or audit the nodes by ssh: --inventory")
    hosts = [Target(node["metadata"]["name"]) for node in nodes]
    return Selection(hosts, findings=[finding for node in nodes for finding in kube_nodes.findings(node)])


def ask(
    selection: Selection,
    context: str,
    probe: ProbeRequest,
    options: AuditOptions,
    on_result: Callable[[HostResult], None],
) -> tuple[Fleet, str]:
    """Facts of the selected nodes, and a note on pods that could not be removed; "" without."""
    cluster = kube.connect(context, probe.namespace)
    names = [host.name for host in selection.hosts]

    def passed_on(result: HostResult) -> HostResult:
        on_result(result)
        return result

    probe = replace(probe, forks=options.forks, timeout_s=options.limit_s + options.window_s)
    answers = nodes_kube_probe.ask(cluster, names, probe, question(options), passed_on)
    results = {result.host: result for result in answers.results}
    return fleet_of(selection.hosts, results), nodes_kube_probe.leftovers(answers.left, cluster.namespace)
