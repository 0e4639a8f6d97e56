"""The environment of a cluster file as the target of NCCL tests: its own pods if it is deployed, else new ones."""

from __future__ import annotations

from dataclasses import replace

from gpuctl.core.errors import InvalidInput
from gpuctl.core.text import plural
from gpuctl.edges.kube import cluster as kube
from gpuctl.nccl.launch.output import create_folder
from gpuctl.nccl.runners.kube.exec_transport import pod_options
from gpuctl.nccl.runners.mpirun import MpiRunner, MpirunOptions
from gpuctl.workflows import nccl_in_pods, nccl_on_cluster
from gpuctl.workflows.nccl_on_cluster import Place
from gpuctl.workflows.nccl_targets import pods
from gpuctl.workflows.nccl_targets.model import NodeAccess, Notify, TargetRequest, flags, set_options

DOING = "run NCCL tests on a cluster"
FOR_DEPLOYED = ("context", "rack_label")  # options of pods that apply to a deployed environment, too


def access(request: TargetRequest, gpus: int, notify: Notify) -> NodeAccess:
    """Access to the environment's pods, or to nodes of its cluster if it is not deployed."""
    place = nccl_on_cluster.place(request.environment.cluster, request.environment.environment, request.pods.context)
    if place.count is not None:
        return _in_its_pods(place, request, notify)
    if request.environment.environment:
        raise _not_deployed(place)
    return _in_new_pods(place, request, gpus, notify)


def _in_its_pods(place: Place, request: TargetRequest, notify: Notify) -> NodeAccess:
    if others := [name for name in set_options(request.pods) if name not in FOR_DEPLOYED]:
        wrong = (
            f"{flags(others)} applies to pods created for a test, but {place.env.name} is deployed and holds the GPUs"
        )
        raise InvalidInput(DOING, wrong, "leave it out, or `gpuctl cluster destroy` first")
    chosen = nccl_on_cluster.chosen(place, request.nodes)
    notify(f"in {plural(len(chosen), 'pod')} of {place.env.name}, which is deployed")
    for name, why in () if request.nodes else place.pods[1].items():
        notify(f"left out: {name}: {why}")
    transport, ssh_args = nccl_on_cluster.transport(place, chosen), request.hosts.ssh_args
    racks = nccl_on_cluster.racks(place, chosen, request.pods.rack_label)
    if racks is None:
        notify("racks are not known: you have no permission to list nodes")
    options = MpirunOptions(request.search_path, ssh_args=ssh_args, save_output=create_folder(request.save_output))
    nodes = list(transport.pods)
    return NodeAccess(
        MpiRunner(transport, pod_options(options)),
        nodes,
        place.where,
        racks or {},
        queryable=nodes,
        before=lambda alone: nccl_in_pods.before(transport, nodes, ssh_args, alone=alone),
        layout=lambda: nccl_in_pods.layout(transport, nodes),
    )


def _not_deployed(place: Place) -> InvalidInput:
    """Error for a named environment that does not exist; no other GPUs are used in its place."""
    wrong = f"no environment {place.env.name} is in {place.env.namespace}"
    hint = "without --environment the test gets pods of its own if the file's environment is not deployed"
    return InvalidInput(f"run NCCL tests in the pods of {place.env.name}", wrong, hint)


def _in_new_pods(place: Place, request: TargetRequest, gpus: int, notify: Notify) -> NodeAccess:
    """Access through pods of the test's own, as the cluster file describes them; command-line options win."""
    if request.hosts.ssh_args:
        raise InvalidInput(DOING, "--ssh-args needs an environment that is deployed")
    options = request.pods
    settings = pods.settings_of(nccl_on_cluster.settings(place), request)
    cluster = kube.connect(options.context, options.namespace) if options.namespace else place.cluster
    notify(f"in pods of its own, for {place.env.name} is not deployed in {place.env.namespace}")
    new_pods = pods.Place(cluster, settings, nccl_on_cluster.allowed_nodes(place))
    node_access = pods.in_pods(new_pods, request, gpus, notify)
    return replace(node_access, where=place.where, env=nccl_on_cluster.variables_of(place))
