"""From a task to the objects that Kubernetes is given: plain functions, no cluster."""

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
# Root may lock all memory, and its sshd become another; to anybody else a capability of the container is of no use.
OF_ROOT = ("IPC_LOCK", "SETGID", "SETUID", "SYS_CHROOT")
# Whole paths only: nobody has a home in a pod, and a PATH knows no "~".
USUAL = [folder for folder in mpirun_command.FOLDERS if folder.startswith("/")]
# mpirun and its ssh to each worker.
LAUNCHER_ROOM = {"cpu": "1", "memory": "2Gi"}
SSH_PORT = {"name": "ssh", "port": scripts.PORT, "targetPort": scripts.PORT, "protocol": "TCP"}


def secret(task: Task, login: tuple[str, str], host: tuple[str, str]) -> Object:
    """The keys and settings of ssh; never to be printed."""
    files = scripts.secret_files(task, login, host)
    data = {name: base64.b64encode(text.encode()).decode() for name, text in files.items()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": meta(task, task.name), "type": "Opaque", "data": data}


def service(task: Task) -> Object:
    """Gives each worker its name; headless, and before the workers are ready."""
    spec = {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": {**task.labels, COMPONENT: WORKER},
        "ports": [SSH_PORT],
    }
    return {"apiVersion": "v1", "kind": "Service", "metadata": meta(task, task.name), "spec": spec}


def workers(task: Task) -> list[Object]:
    """A pod with all GPUs of its node on each node."""
    return [_worker(task, index, node) for index, node in enumerate(task.launch.nodes)]


def launcher(task: Task, addresses: Sequence[str] = ()) -> Object:
    """The pod that starts the test and prints what it finds; on a single node it is the only one.

    `addresses`: of the workers, in the order of the nodes. By them it knows their names at once: a cluster's DNS learns
    them late, and can take long to say that it does not know a name.
    """
    spec = launcher_spec(task)
    if len(task.hosts) > 1:
        names = [{"ip": address, "hostnames": [host]} for host, address in zip(task.hosts, addresses, strict=False)]
        return _pod(task, f"{task.name}-launcher", LAUNCHER, {**spec, "hostAliases": names})
    return _pod(task, f"{task.name}-launcher", LAUNCHER, {**spec, **on(task.launch.nodes)})


def launcher_spec(task: Task) -> Object:
    """Of the pod that starts the test, wherever it runs."""
    program = plan.program(task.launch.sweep)
    many = len(task.hosts) > 1
    # By their names on the PATH, which is the same in every pod.
    ssh = f"-F {scripts.FOLDER}/ssh_config"
    command = plan.command(task.launch, task.hosts, as_root=task.settings.user == 0, ssh_args=ssh)
    command = [program if word == "{program}" else word for word in command]
    container = _container(task, scripts.LAUNCHER, command, LAUNCHER_ROOM if many else _resources(task))
    container["env"] += _env({**mpirun_command.environment(plan.environment(task.launch), task.run), **_told(task)})
    return _with_ssh(task, _spec(task, container)) if many else _spec(task, container)


def _told(task: Task) -> dict[str, str]:
    """What the launcher's script goes by."""
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
    """Of a pod that holds a node's GPUs and lets the launcher in, wherever it runs."""
    container = _container(task, scripts.WORKER, [], _resources(task))
    container["ports"] = [{"name": "ssh", "containerPort": scripts.PORT, "protocol": "TCP"}]
    container["readinessProbe"] = {"tcpSocket": {"port": scripts.PORT}, "periodSeconds": 1}
    return _with_ssh(task, _spec(task, container))


def _worker(task: Task, index: int, node: str) -> Object:
    named = {"hostname": f"w{index}", "subdomain": task.name}
    return _pod(task, f"{task.name}-w{index}", WORKER, {**named, **on([node]), **worker_spec(task)})


def meta(task: Task, name: str, component: str = "") -> Object:
    """Name, labels, and by whom and until when: how it is found again."""
    labels = {**task.labels, **({COMPONENT: component} if component else {})}
    return {"name": name, "labels": labels, "annotations": {BY: task.by, LASTS: f"{task.lasts_s:g}"}}


def _pod(task: Task, name: str, component: str, spec: Object) -> Object:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": pod_meta(task, name, component), "spec": spec}


def pod_meta(task: Task, name: str, component: str) -> Object:
    """That of a pod, or of a template for pods."""
    metadata = meta(task, name, component)
    if task.settings.networks:
        metadata["annotations"]["k8s.v1.cni.cncf.io/networks"] = task.settings.networks
    return metadata


def on(nodes: Sequence[str]) -> Object:
    """Only on one of these nodes, but through the scheduler: it knows whether there is room. By the nodes' names, since
    the label kubernetes.io/hostname may be another; a field takes only one."""
    fields = [{"key": "metadata.name", "operator": "In", "values": [node]} for node in nodes]
    required = {"nodeSelectorTerms": [{"matchFields": [field]} for field in fields]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}


def _spec(task: Task, container: Object) -> Object:
    """What all pods have: no rights, no token, one try, and an end of its own."""
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
    # Keys are root's own files, or its group's: ssh takes no key of its own user that others can read.
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
        # The same for both: the pod is Guaranteed, and nobody else's cores are its own.
        "resources": {"requests": dict(resources), "limits": dict(resources)},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"], **add}},
        # Open MPI writes to /tmp, which in an image may be root's alone.
        "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}, {"name": "tmp", "mountPath": "/tmp"}],  # noqa: S108
        # A log that is read to its end says why; a container that could not start says it here.
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }


def _resources(task: Task) -> dict[str, str]:
    settings = task.settings
    gpus = {settings.gpu: str(task.launch.sweep.gpus_per_node)}
    return {"cpu": settings.cpu, "memory": settings.memory, **gpus, **settings.fabric}


def _env(values: Mapping[str, str]) -> list[Object]:
    return [{"name": name, "value": value} for name, value in sorted(values.items())]
