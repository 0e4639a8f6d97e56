"""Kubernetes objects of a task: plain functions, no I/O."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from typing import Any

from gpuctl.engine import mpirun_command
from gpuctl.nccl import plan
from gpuctl.nccl.runners.kube import hang_probe, scripts
from gpuctl.nccl.runners.kube.model import BY, COMPONENT, LASTS, LAUNCHER, WORKER, Task

Object = dict[str, Any]
# For root: lock memory, and let its sshd change users. Capabilities do not apply to other users.
OF_ROOT = ("IPC_LOCK", "SETGID", "SETUID", "SYS_CHROOT")
# Absolute paths only: users have no home in a pod, and "~" is not expanded in a PATH.
USUAL = [folder for folder in mpirun_command.FOLDERS if folder.startswith("/")]
# mpirun and its ssh to each worker.
LAUNCHER_ROOM = {"cpu": "1", "memory": "2Gi"}
SSH_PORT = {"name": "ssh", "port": scripts.PORT, "targetPort": scripts.PORT, "protocol": "TCP"}


def secret(task: Task, login: tuple[str, str], host: tuple[str, str]) -> Object:
    """Secret with the keys and settings of ssh; never print it."""
    files = scripts.secret_files(task, login, host)
    data = {name: base64.b64encode(text.encode()).decode() for name, text in files.items()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": meta(task, task.name), "type": "Opaque", "data": data}


def service(task: Task) -> Object:
    """Headless service that gives each worker its name, also before the workers are ready."""
    spec = {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": {**task.labels, COMPONENT: WORKER},
        "ports": [SSH_PORT],
    }
    return {"apiVersion": "v1", "kind": "Service", "metadata": meta(task, task.name), "spec": spec}


def workers(task: Task) -> list[Object]:
    """One pod for each node, with all GPUs of the node."""
    return [_worker(task, index, node) for index, node in enumerate(task.launch.nodes)]


def launcher(task: Task, addresses: Sequence[str] = ()) -> Object:
    """Pod that starts the test and prints its output; on a single node it is the only pod.

    `addresses` of the workers, in the order of the nodes, become host aliases: a cluster's DNS learns new names late,
    and may take long to answer that it does not know one.
    """
    spec = launcher_spec(task)
    if len(task.hosts) > 1:
        names = [{"ip": address, "hostnames": [host]} for host, address in zip(task.hosts, addresses, strict=False)]
        return _pod(task, f"{task.name}-launcher", LAUNCHER, {**spec, "hostAliases": names})
    return _pod(task, f"{task.name}-launcher", LAUNCHER, {**spec, **on(task.launch.nodes)})


def launcher_spec(task: Task) -> Object:
    """Spec of the pod that starts the test, without its placement."""
    program = plan.program(task.launch.sweep)
    many = len(task.hosts) > 1
    # Programs are found on the PATH, which is the same in every pod.
    ssh = f"-F {scripts.FOLDER}/ssh_config"
    command = plan.command(task.launch, task.hosts, as_root=task.settings.user == 0, ssh_args=ssh)
    command = [program if part == "{program}" else part for part in command]
    container = _container(task, scripts.LAUNCHER, command, LAUNCHER_ROOM if many else _resources(task))
    container["env"] += _env(
        {**mpirun_command.environment(plan.environment(task.launch), task.run), **_script_variables(task)}
    )
    return _with_ssh(task, _spec(task, container)) if many else _spec(task, container)


def _script_variables(task: Task) -> dict[str, str]:
    """Variables of the launcher's script."""
    many, program = len(task.hosts) > 1, plan.program(task.launch.sweep)
    return {
        "GPUCTL_HOSTS": " ".join(task.hosts) if many else "",
        "GPUCTL_NEEDS": f"{'ssh mpirun ' * many}{program}",
        "GPUCTL_LIMIT": str(math.ceil(task.launch.sweep.limit_s)),
        "GPUCTL_LOOK": hang_probe.PROGRAM,
        "GPUCTL_MARK": f"{mpirun_command.VARIABLE}={task.run}",
        "GPUCTL_TEST": plan.name_in_kernel(task.launch.sweep),
    }


def worker_spec(task: Task) -> Object:
    """Spec of a pod that holds a node's GPUs and accepts ssh from the launcher, without its placement."""
    container = _container(task, scripts.WORKER, [], _resources(task))
    container["ports"] = [{"name": "ssh", "containerPort": scripts.PORT, "protocol": "TCP"}]
    container["readinessProbe"] = {"tcpSocket": {"port": scripts.PORT}, "periodSeconds": 1}
    return _with_ssh(task, _spec(task, container))


def _worker(task: Task, index: int, node: str) -> Object:
    named = {"hostname": f"w{index}", "subdomain": task.name}
    return _pod(task, f"{task.name}-w{index}", WORKER, {**named, **on([node]), **worker_spec(task)})


def meta(task: Task, name: str, component: str = "") -> Object:
    """Metadata that identifies an object of a run: name, labels, user and lifetime."""
    labels = {**task.labels, **({COMPONENT: component} if component else {})}
    return {"name": name, "labels": labels, "annotations": {BY: task.actor, LASTS: f"{task.lasts_s:g}"}}


def _pod(task: Task, name: str, component: str, spec: Object) -> Object:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": pod_meta(task, name, component), "spec": spec}


def pod_meta(task: Task, name: str, component: str) -> Object:
    """Metadata of a pod or of a pod template."""
    metadata = meta(task, name, component)
    if task.settings.networks:
        metadata["annotations"]["k8s.v1.cni.cncf.io/networks"] = task.settings.networks
    return metadata


def on(nodes: Sequence[str]) -> Object:
    """Affinity to these nodes. The scheduler still decides, because it knows which resources are free.

    Nodes are selected by name, since the label kubernetes.io/hostname may differ; a field selector takes one value.
    """
    fields = [{"key": "metadata.name", "operator": "In", "values": [node]} for node in nodes]
    required = {"nodeSelectorTerms": [{"matchFields": [field]} for field in fields]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}


def _spec(task: Task, container: Object) -> Object:
    """Common spec of all pods: no privileges, no token, no restart, and a deadline."""
    settings = task.settings
    more: Object = {"serviceAccountName": settings.service_account} if settings.service_account else {}
    if settings.pull_secret:
        more["imagePullSecrets"] = [{"name": settings.pull_secret}]
    return {
        **more,
        "containers": [container],
        "volumes": [
            {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": settings.shm}},
            {"name": "tmp", "emptyDir": {"sizeLimit": "1Gi"}},
        ],
        "restartPolicy": "Never",
        "activeDeadlineSeconds": int(task.lasts_s),
        "terminationGracePeriodSeconds": 5,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {**_user(settings.user), "seccompProfile": {"type": "RuntimeDefault"}},
        # GPU nodes are often kept free for pods that use their GPUs.
        "tolerations": [
            {"key": key, "operator": "Exists"}
            for key in (settings.gpu, *settings.fabric, *settings.tolerations)
            if "hugepages" not in key
        ],
    }


def _user(user: int) -> Object:
    # Keys belong to root or to the group: ssh rejects a key of its own user that others can read.
    return {"runAsNonRoot": user != 0, "runAsUser": user, "runAsGroup": user, **({"fsGroup": user} if user else {})}


def _with_ssh(task: Task, spec: Object) -> Object:
    mode = 0o440 if task.settings.user else 0o400
    volume = {"name": "ssh", "secret": {"secretName": task.name, "defaultMode": mode}}
    (container,) = spec["containers"]
    mounts = [
        *container["volumeMounts"],
        {"name": "ssh", "mountPath": scripts.FOLDER, "readOnly": True},
        {"name": "ssh", "mountPath": "/etc/passwd", "subPath": "passwd", "readOnly": True},
    ]
    return {**spec, "containers": [{**container, "volumeMounts": mounts}], "volumes": [*spec["volumes"], volume]}


def _container(task: Task, script: str, arguments: Sequence[str], resources: Mapping[str, str]) -> Object:
    add = {"add": list(OF_ROOT)} if task.settings.user == 0 else {}
    return {
        "name": "nccl",
        "image": task.settings.image,
        "command": ["/bin/sh", "-c", script, "nccl", *arguments],
        "env": _env({"GPUCTL_FIRST": ":".join(task.settings.search_path), "GPUCTL_FOLDERS": ":".join(USUAL)}),
        # Equal requests and limits: the pod gets the QoS class Guaranteed, with cores of its own.
        "resources": {"requests": dict(resources), "limits": dict(resources)},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"], **add}},
        # Open MPI writes to /tmp, which may be writable by root only in an image.
        "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}, {"name": "tmp", "mountPath": "/tmp"}],  # noqa: S108
        # The log contains the reason of a failure; this one is for a container that could not start.
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }


def _resources(task: Task) -> dict[str, str]:
    settings = task.settings
    gpus = {settings.gpu: str(task.launch.sweep.gpus_per_node)}
    return {"cpu": settings.cpu, "memory": settings.memory, **gpus, **settings.fabric}


def _env(values: Mapping[str, str]) -> list[Object]:
    return [{"name": name, "value": value} for name, value in sorted(values.items())]
