"""A launch as an MPIJob of the Kubeflow MPI operator (kubeflow.org/v2beta1), for clusters where jobs come through it.

The operator makes the workers and the launcher from our own pods' descriptions: our keys, our sshd, our commands. Its
own keys and host file are there, too, and not used.
"""

from __future__ import annotations

from typing import Any

from gpuctl.core.errors import InvalidInput
from gpuctl.edges.kube.cluster import Cluster
from gpuctl.nccl.runners.kube import objects
from gpuctl.nccl.runners.kube.model import COMPONENT, LAUNCHER, WORKER, Task

Object = dict[str, Any]
API, KIND = "kubeflow.org/v2beta1", "MPIJob"
# Within so long an operator that runs has said something of a new job.
NOTICED_S = 30.0
VERBS = ("create", "patch", "get", "list", "delete")


def chosen(cluster: Cluster, requested: bool | None) -> tuple[bool, str]:
    """Whether launches become MPIJobs, and why, in words; by default where the cluster serves them and we may.

    `InvalidInput` where they are wanted and cannot be had.
    """
    if requested is False or not (served := cluster.serves(API, KIND)):
        if requested:
            raise InvalidInput(
                "run as MPIJobs", f"{cluster.server} does not serve {KIND} of {API}", "leave out --mpijob"
            )
        return False, ""
    lacking = [verb for verb in VERBS if served and not cluster.may(verb, cluster.kind(API, KIND))]
    if lacking and requested:
        raise InvalidInput("run as MPIJobs", f"you may not {lacking[0]} them in {cluster.namespace}", "ask for a role")
    if lacking:
        return False, f"in pods of its own, for you may not {lacking[0]} MPIJobs in {cluster.namespace}"
    return True, "as MPIJobs of the MPI operator" + ("" if requested else "; --no-mpijob runs without it")


def job(task: Task) -> Object:
    """The job; each worker goes to one of the nodes, and no two to the same."""
    spec = {
        "slotsPerWorker": task.launch.sweep.gpus_per_node,
        # What is left when it has ended is ours to remove, after it was looked at.
        "runPolicy": {"cleanPodPolicy": "None", "backoffLimit": 0, "activeDeadlineSeconds": int(task.lasts_s)},
        "launcherCreationPolicy": "WaitForWorkersReady",
        # The operator's own keys, which we do not use; by default they would stand in root's home.
        "sshAuthMountPath": "/etc/mpi-ssh",
        "mpiReplicaSpecs": {
            "Launcher": _replicas(task, 1, LAUNCHER, objects.launcher_spec(task)),
            "Worker": _replicas(task, len(task.launch.nodes), WORKER, _apart(task, objects.worker_spec(task))),
        },
    }
    return {"apiVersion": API, "kind": KIND, "metadata": objects.meta(task, task.name), "spec": spec}


def _replicas(task: Task, count: int, component: str, spec: Object) -> Object:
    meta = objects.pod_meta(task, "", component)
    template = {"metadata": {key: meta[key] for key in ("labels", "annotations")}, "spec": spec}
    return {"replicas": count, "restartPolicy": spec.pop("restartPolicy"), "template": template}


def _apart(task: Task, spec: Object) -> Object:
    where = objects.on(task.launch.nodes)
    term = {"labelSelector": {"matchLabels": {**task.labels, COMPONENT: WORKER}}}
    apart = {**term, "topologyKey": "kubernetes.io/hostname"}
    where["affinity"]["podAntiAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}
    return {**spec, **where}


def why_nothing(cluster: Cluster, task: Task) -> str:
    """Why a job has no pods, as far as the job itself tells."""
    job = cluster.get(cluster.kind(API, KIND), task.name)
    if job is None:
        return "its MPIJob was deleted by somebody else"
    if (job["spec"].get("runPolicy") or {}).get("suspend"):
        return "its MPIJob is suspended: a queue holds it back"
    true_conditions = [
        condition
        for condition in (job.get("status") or {}).get("conditions") or []
        if condition.get("status") == "True"
    ]
    if true_conditions:
        latest = true_conditions[-1]
        return f"its MPIJob has no pods ({latest['type']}): {latest.get('message') or 'no reason given'}"
    return "nothing acts on its MPIJob: is the MPI operator running? --no-mpijob runs without it"


def is_unnoticed(cluster: Cluster, task: Task) -> bool:
    """Whether no operator has said anything of the job, and no queue holds it back."""
    job = cluster.get(cluster.kind(API, KIND), task.name) or {}
    suspended = ((job.get("spec") or {}).get("runPolicy") or {}).get("suspend")
    return bool(job) and not suspended and not (job.get("status") or {})
