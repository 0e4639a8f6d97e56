"""The pods: one pod template for RDMA and TCP, for a StatefulSet and for a standalone pod."""

from __future__ import annotations

from gpuctl.cluster.clusterfile import variables
from gpuctl.cluster.environment import Environment, Object
from gpuctl.cluster.manifests import build, config, container, placement, rights, storage

WHY, STARTED_WITH = "gpuctl/why.", "gpuctl/start"
QUEUE = "kueue.x-k8s.io/queue-name"
NETWORKS = "k8s.v1.cni.cncf.io/networks"


def all_of(env: Environment) -> list[Object]:
    """Return the StatefulSet with its disruption budget, or the standalone pod."""
    if env.single:
        return [single(env)]
    return [stateful_set(env), *([budget(env)] if env.cluster.pods.disruption_budget else [])]


def stateful_set(env: Environment) -> Object:
    """Return the StatefulSet, which starts all pods at once: none is useful without the others."""
    spec = {
        "serviceName": env.name,
        "replicas": env.nodes,
        "podManagementPolicy": "Parallel",
        "updateStrategy": {"type": "RollingUpdate"},
        "selector": {"matchLabels": env.selector},
        "template": {"metadata": _meta(env), "spec": _spec(env)},
    }
    claims = storage.templates(env)
    if claims:
        spec["volumeClaimTemplates"] = claims
    meta = _with_labels(env, env.meta(env.name, env.component, reasons(env)))
    return {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": meta, "spec": spec}


def single(env: Environment) -> Object:
    """Return the standalone pod, without a controller."""
    meta = _with_labels(env, env.meta(env.name, env.component, {**reasons(env), **_annotations(env)}))
    spec = {**_spec(env), "restartPolicy": "Always"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def budget(env: Environment) -> Object:
    """Forbid evictions: a training that loses one rank has lost all."""
    spec = {"maxUnavailable": 0, "selector": {"matchLabels": env.selector}}
    meta = env.meta(env.name, env.component)
    return {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": meta, "spec": spec}


def reasons(env: Environment) -> dict[str, str]:
    """Return the reason for each variable; not part of the pod template, where a new text would restart pods."""
    return {f"{WHY}{variable.name}": variable.why for variable in variables.all_of(env.cluster, env.mode)}


def _meta(env: Environment) -> Object:
    return _with_labels(env, {"labels": {**env.labels, **env.selector}, "annotations": _annotations(env)})


def _with_labels(env: Environment, meta: Object) -> Object:
    """Return metadata with the labels of the site; those of the environment prevail."""
    pods = env.cluster.pods
    queue = {QUEUE: pods.queue} if pods.queue else {}
    return {**meta, "labels": {**pods.labels, **queue, **meta["labels"]}}


def _annotations(env: Environment) -> dict[str, str]:
    networks = env.cluster.network.rdma.attachments if env.rdma else ()
    return {
        **env.cluster.pods.annotations,
        STARTED_WITH: config.fingerprint(env),
        **({NETWORKS: ",".join(networks)} if networks else {}),
    }


def _spec(env: Environment) -> Object:
    image, pods = env.cluster.image, env.cluster.pods
    own_network = env.rdma and env.cluster.network.rdma.host_network
    return {
        **placement.where(env),
        **({"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"} if own_network else {}),
        "serviceAccountName": rights.account_name(env),
        "automountServiceAccountToken": False,
        # Variables for every Service of the namespace are useless, and slow down the start.
        "enableServiceLinks": False,
        **({"priorityClassName": pods.priority_class} if pods.priority_class else {}),
        **({"runtimeClassName": pods.runtime_class} if pods.runtime_class else {}),
        "terminationGracePeriodSeconds": pods.grace_period,
        **({"imagePullSecrets": [{"name": image.pull_secret}]} if image.pull_secret else {}),
        "securityContext": container.user(env),
        "initContainers": [container.prepare(env, build.reference(env))],
        "containers": [container.main(env, build.reference(env))],
        "volumes": [*container.volumes(env), *storage.volumes(env)],
    }
