"""The containers of a pod: user, resources, environment and mounts."""

from __future__ import annotations

from gpuctl.cluster.clusterfile import variables
from gpuctl.cluster.environment import CONTAINER, Environment, Object
from gpuctl.cluster.manifests import rights, storage
from gpuctl.cluster.manifests.scripts import HOME, HOSTS, KEYS, PASSWD, RUN, START_AT

ORDINARY = 1000  # the user if the cluster assigns none
IN_ENVIRONMENT = "environment"  # the value of pods.secrets.NAME for variables instead of files
PORTS = ("master", "ssh", "vscode", "jupyter")
TEMPORARY = "/tmp"  # noqa: S108 - a path in the pod


def user(env: Environment) -> Object:
    """Return the pod's security context. On OpenShift the namespace assigns the user."""
    number = env.cluster.security.run_as_user or ORDINARY
    # Volumes belong to the group too: root without CAP_DAC_OVERRIDE has no more access than other users.
    always = {
        **_seccomp(env),
        **({} if env.openshift else {"fsGroup": number}),
        "fsGroupChangePolicy": "OnRootMismatch",
    }
    if env.rdma and env.cluster.security.rdma_as_root:
        # One group in both modes, so that both can write the volumes; on OpenShift all users have group 0.
        return {"runAsNonRoot": False, "runAsUser": 0, "runAsGroup": 0 if env.openshift else number, **always}
    if env.openshift:
        return {**({} if _privileged(env) else {"runAsNonRoot": True}), **always}
    return {"runAsNonRoot": True, "runAsUser": number, "runAsGroup": number, **always}


def _privileged(env: Environment) -> bool:
    return rights.constraints_name(env) == rights.PRIVILEGED


def _seccomp(env: Environment) -> Object:
    return {} if _privileged(env) else {"seccompProfile": {"type": "RuntimeDefault"}}


def _rights(env: Environment) -> Object:
    """Return the container's privileges: only those that the file requests."""
    if _privileged(env):
        return {"privileged": True}
    add = rights.capabilities(env)
    capabilities = {"drop": ["ALL"], **({"add": add} if add else {})}
    return {"allowPrivilegeEscalation": False, "capabilities": capabilities}


def main(env: Environment, image: str) -> Object:
    """Return the training container. NVIDIA_VISIBLE_DEVICES is not set: the device plugin assigns the GPUs."""
    return {
        "name": CONTAINER,
        "image": image,
        "imagePullPolicy": env.cluster.image.pull_policy,
        "command": ["/bin/sh", f"{START_AT}/start.sh"],
        "workingDir": "/workspace",
        "env": _env(env),
        **({"envFrom": secrets} if (secrets := _secret_variables(env)) else {}),
        "ports": [
            {"name": word, "containerPort": getattr(env.cluster.ports, word), "protocol": "TCP"} for word in PORTS
        ],
        "resources": _same({**_room(env), **_devices(env)}),
        "securityContext": _rights(env),
        "readinessProbe": {"exec": {"command": ["test", "-f", f"{RUN}/ready"]}, "periodSeconds": 2},
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [*_mounts(), _passwd(), *storage.mounts(env), *_secret_mounts(env)],
    }


def prepare(env: Environment, image: str) -> Object:
    """Return the init container that gives the user a name."""
    return {
        "name": "prepare",
        "image": image,
        "imagePullPolicy": env.cluster.image.pull_policy,
        "command": ["/bin/sh", f"{START_AT}/prepare.sh"],
        # The same as the main container: of init and main containers, the largest request counts.
        "resources": _same(_room(env)),
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [mount for mount in _mounts() if mount["name"] in ("start", "run")],
    }


def _room(env: Environment) -> dict[str, str]:
    return {"cpu": env.cluster.resources.cpu, "memory": env.cluster.resources.memory}


def _devices(env: Environment) -> dict[str, str]:
    """Return GPUs in both modes, adapters and huge pages for RDMA."""
    gpus, pages = env.cluster.gpus, env.cluster.resources.hugepages_2mi
    devices = {gpus.resource: str(gpus.per_node)}
    if env.rdma:
        devices |= {name: str(count) for name, count in env.cluster.network.rdma.resources.items()}
        devices |= {"hugepages-2Mi": pages} if pages else {}
    return devices


def _same(resources: dict[str, str]) -> Object:
    """Return equal requests and limits: the pod is Guaranteed, keeps its cores, and is evicted last."""
    return {"requests": dict(resources), "limits": dict(resources)}


def _env(env: Environment) -> list[Object]:
    fixed = {
        "GPUS_PER_NODE": str(env.cluster.gpus.per_node),
        "HOME": HOME,
        "MASTER_ADDR": env.host(0),
        "MASTER_PORT": str(env.cluster.ports.master),
    }
    site = env.cluster.pods.environment
    chosen = {variable.name: variable.value for variable in variables.all_of(env.cluster, env.mode)}
    pod = [_of_pod("POD_NAME", "metadata.name"), _of_pod("POD_NAMESPACE", "metadata.namespace")]
    return [*pod, *({"name": name, "value": value} for name, value in {**site, **fixed, **chosen}.items())]


def _secret_variables(env: Environment) -> list[Object]:
    uses = env.cluster.pods.secrets
    return [{"secretRef": {"name": name}} for name, use in uses.items() if use == IN_ENVIRONMENT]


def _secret_files(env: Environment) -> dict[str, tuple[str, str]]:
    """Return the volumes of Secrets that are mounted: volume name -> Secret and path."""
    mounted = [(name, use) for name, use in env.cluster.pods.secrets.items() if use != IN_ENVIRONMENT]
    return {f"secret-{number}": secret for number, secret in enumerate(mounted)}


def _of_pod(name: str, field: str) -> Object:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": field}}}


def _secret_mounts(env: Environment) -> list[Object]:
    return [{"name": volume, "mountPath": path, "readOnly": True} for volume, (_, path) in _secret_files(env).items()]


def _passwd() -> Object:
    """Mount the passwd file that `prepare` wrote."""
    return {"name": "run", "mountPath": PASSWD, "subPath": "passwd", "readOnly": True}


def _mounts() -> list[Object]:
    return [
        {"name": "start", "mountPath": START_AT, "readOnly": True},
        {"name": "hosts", "mountPath": HOSTS, "readOnly": True},
        {"name": "keys", "mountPath": KEYS, "readOnly": True},
        {"name": "run", "mountPath": RUN},
        {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108
        {"name": "tmp", "mountPath": TEMPORARY},
        {"name": "home", "mountPath": HOME},
    ]


def volumes(env: Environment) -> list[Object]:
    """Return the volumes of every pod, except workspace and data sets."""
    pod = env.cluster.resources
    return [
        {"name": "start", "configMap": {"name": f"{env.name}-start"}},
        {"name": "hosts", "configMap": {"name": f"{env.name}-hosts"}},
        {"name": "keys", "secret": {"secretName": env.name, "defaultMode": 0o440}},
        {"name": "run", "emptyDir": {"medium": "Memory", "sizeLimit": "16Mi"}},
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": pod.shm}},
        {"name": "tmp", "emptyDir": {"sizeLimit": pod.scratch}},
        {"name": "home", "emptyDir": {"sizeLimit": pod.scratch}},
        *(
            {"name": volume, "secret": {"secretName": secret, "defaultMode": 0o440}}
            for volume, (secret, _) in _secret_files(env).items()
        ),
    ]
