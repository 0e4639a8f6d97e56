"""Launch as an MPIJob of the Kubeflow MPI operator (kubeflow.org/v2beta1), for clusters that run jobs through it.

The operator creates the workers and the launcher from our pod specs, with our keys, sshd and commands. Its own keys
and hostfile exist as well, but are not used.
"""

from __future__ import annotations

from typing import Any

from gpuctl.core.errors import InvalidInput
from gpuctl.edges.kube.cluster import Cluster
from gpuctl.nccl.runners.kube import objects
from gpuctl.nccl.runners.kube.model import COMPONENT, LAUNCHER, WORKER, Task

Object = dict[str, Any]
API, KIND = "kubeflow.org/v2beta1", "MPIJob"
# Seconds for a running operator to write the status of a new job.
NOTICED_S = 30.0
VERBS = ("create", "patch", "get", "list", "delete")


def chosen(cluster: Cluster, requested: bool | None) -> tuple[bool, str]:
    """Decide if launches become MPIJobs, with the reason; by default if the cluster serves them and the user may.

    `InvalidInput` if they are requested but not possible.
    """
    if requested is False or not (served := cluster.serves(API, KIND)):
        if requested:
            raise InvalidInput(
                "run as MPIJobs", f"{cluster.server} does not serve {KIND} of {API}", "leave out --mpijob"
            )
        return False, ""
    lacking = [verb for verb in VERBS if served and not cluster.may(verb, cluster.kind(API, KIND))]
    if lacking and requested:
        raise InvalidInput(
            "run as MPIJobs", f"you have no permission to {lacking[0]} them in {cluster.namespace}", "ask for a role"
        )
    if lacking:
        return False, f"in pods of its own: you have no permission to {lacking[0]} MPIJobs in {cluster.namespace}"
    return True, "as MPIJobs of the MPI operator" + ("" if requested else "; --no-mpijob runs without it")


def job(task: Task) -> Object:
    """MPIJob of a task; each node gets one worker."""
    spec = {
        "slotsPerWorker": task.launch.sweep.gpus_per_node,
        # gpuctl reads the ended pods and then removes them.
        "runPolicy": {"cleanPodPolicy": "None", "backoffLimit": 0, "activeDeadlineSeconds": int(task.lasts_s)},
        "launcherCreationPolicy": "WaitForWorkersReady",
        # The operator's keys are not used; by default they would be mounted in root's home.
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
    """Reason why a job has no pods, from the job's own status."""
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
    """True if no operator has written a status, and no queue suspends the job."""
    job = cluster.get(cluster.kind(API, KIND), task.name) or {}
    suspended = ((job.get("spec") or {}).get("runPolicy") or {}).get("suspend")
    return bool(job) and not suspended and not (job.get("status") or {})
