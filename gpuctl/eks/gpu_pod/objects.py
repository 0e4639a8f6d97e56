"""Kubernetes objects of a GPU pod, as plain data."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from typing import Any

from gpuctl.domain import public_keys
from gpuctl.domain.public_keys import PublicKey
from gpuctl.eks.gpu_pod import model, scripts
from gpuctl.eks.gpu_pod.model import Form

Object = dict[str, Any]
CONTAINER, GPU = "main", "nvidia.com/gpu"
ORDINARY = 1000  # the user without --root


def labels(pod: str, part: str) -> dict[str, str]:
    return {"app.kubernetes.io/managed-by": "gpuctl", model.POD_LABEL: pod, model.PART_LABEL: part}


def workspace(pod: str, form: Form) -> Object:
    """The claim of the workspace, which no pod owns: it stays."""
    spec: Object = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": form.workspace}}}
    if form.storage_class:
        spec["storageClassName"] = form.storage_class
    meta = {"name": model.workspace_name(pod), "labels": labels(pod, "workspace")}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": spec}


def keys(pod: str, authorized: Iterable[PublicKey], form: Form) -> Object:
    """The Secret of public keys, which outlives the pod, and so names the values to make it again from."""
    meta = {
        "name": model.keys_name(pod),
        "labels": labels(pod, "keys"),
        "annotations": {model.FORM: form.as_text()},
    }
    return _secret(meta, {scripts.AUTHORIZED: public_keys.text(authorized)})


def host(pod: str, suffix: str, private_key: str, token: str = "") -> Object:
    """The Secret of one pod: its host key, and Jupyter's token if it runs Jupyter."""
    meta = {"name": f"{pod}-host-{suffix}", "labels": labels(pod, "host")}
    return _secret(meta, {scripts.HOST_KEY: private_key, **({scripts.TOKEN: token} if token else {})})


def host_secret(pod: Object) -> str:
    """Name of a pod's Secret; "" if it has none."""
    volumes = pod["spec"].get("volumes") or []
    return next((str(one["secret"].get("secretName", "")) for one in volumes if one.get("name") == "host"), "")


def _secret(meta: Object, values: Mapping[str, str]) -> Object:
    data = {name: base64.b64encode(value.encode()).decode() for name, value in values.items()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "type": "Opaque", "data": data}


def start(pod: str, form: Form) -> Object:
    """The ConfigMap of scripts."""
    meta = {"name": model.start_name(pod), "labels": labels(pod, "start")}
    data = {
        "prepare.sh": scripts.prepare(_user(form)),
        "start.sh": scripts.START,
        "sshd_config": scripts.sshd_config(),
    }
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}


def pod(name: str, form: Form, host_secret: str, host_public: str) -> Object:
    """The pod. Requests equal limits in all containers: it is Guaranteed."""
    user = _user(form)
    meta = {
        "name": name,
        "labels": labels(name, "pod"),
        "annotations": {model.FORM: form.as_text(), model.HOST_KEY: host_public},
    }
    spec = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 10,
        "securityContext": {
            "runAsUser": user,
            "runAsGroup": user,
            "runAsNonRoot": not form.root,
            "fsGroup": user or ORDINARY,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "tolerations": [{"key": GPU, "operator": "Exists"}],
        "initContainers": [_container("prepare", form, "prepare.sh", ("start", "run"))],
        "containers": [_main(form)],
        "volumes": _volumes(name, form, host_secret),
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def _user(form: Form) -> int:
    return 0 if form.root else ORDINARY


def _main(form: Form) -> Object:
    devices = {GPU: str(form.gpus)}
    made = _container("main", form, "start.sh", tuple(MOUNTS))
    resources = {kind: {**values, **devices} for kind, values in made["resources"].items()}
    return {
        **made,
        "name": CONTAINER,
        "resources": resources,
        "workingDir": scripts.WORKSPACE,
        "env": [{"name": "HOME", "value": scripts.HOME}, {"name": "HF_HOME", "value": scripts.CACHE}],
        "readinessProbe": {
            "exec": {"command": ["sh", "-c", scripts.listens(scripts.SSH_PORT)]},
            "periodSeconds": 2,
            "timeoutSeconds": 5,
        },
        "volumeMounts": [
            *made["volumeMounts"],
            {"name": "run", "mountPath": "/etc/passwd", "subPath": "passwd", "readOnly": True},
            {"name": "run", "mountPath": "/etc/motd", "subPath": "motd", "readOnly": True},
        ],
    }


MOUNTS: Mapping[str, tuple[str, bool]] = {  # volume -> path, read-only
    "start": (scripts.START_AT, True),
    "keys": (scripts.KEYS, True),
    "host": (scripts.HOST, True),
    "run": (scripts.RUN, False),
    "shm": ("/dev/shm", False),  # noqa: S108 - a path in the pod
    "workspace": (scripts.WORKSPACE, False),
}


def _container(name: str, form: Form, script: str, mounts: Iterable[str]) -> Object:
    room = {"cpu": form.cpu, "memory": form.memory}
    privileges: Object = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    return {
        "name": name,
        "image": form.image,
        "command": ["sh", f"{scripts.START_AT}/{script}"],
        "resources": {"requests": dict(room), "limits": dict(room)},
        "securityContext": {} if form.root else privileges,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [
            {"name": volume, "mountPath": MOUNTS[volume][0], **({"readOnly": True} if MOUNTS[volume][1] else {})}
            for volume in mounts
        ],
    }


def _volumes(name: str, form: Form, host_secret: str) -> list[Object]:
    return [
        {"name": "start", "configMap": {"name": model.start_name(name)}},
        {"name": "keys", "secret": {"secretName": model.keys_name(name), "defaultMode": 0o440}},
        {"name": "host", "secret": {"secretName": host_secret, "defaultMode": 0o440}},
        {"name": "run", "emptyDir": {"medium": "Memory", "sizeLimit": "16Mi"}},
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": form.shm}},
        {"name": "workspace", "persistentVolumeClaim": {"claimName": model.workspace_name(name)}},
    ]
