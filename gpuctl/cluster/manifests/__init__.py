"""Render the Kubernetes objects of an environment: each a function from the environment to plain data."""

from __future__ import annotations

from gpuctl.cluster.environment import Environment, Object
from gpuctl.cluster.manifests import access, build, config, network, pods, rights, secret, storage

# Every kind that an environment can have, in the order of creation; removal is in reverse order.
KINDS = (
    ("v1", "ServiceAccount"),
    ("security.openshift.io/v1", "SecurityContextConstraints"),
    ("rbac.authorization.k8s.io/v1", "Role"),
    ("rbac.authorization.k8s.io/v1", "RoleBinding"),
    ("v1", "Secret"),
    ("v1", "ConfigMap"),
    ("image.openshift.io/v1", "ImageStream"),
    ("build.openshift.io/v1", "BuildConfig"),
    ("v1", "Service"),
    ("networking.k8s.io/v1", "NetworkPolicy"),
    ("v1", "PersistentVolumeClaim"),
    ("apps/v1", "StatefulSet"),
    ("v1", "Pod"),
    ("policy/v1", "PodDisruptionBudget"),
    ("route.openshift.io/v1", "Route"),
    ("networking.k8s.io/v1", "Ingress"),
)
# Holds data, and is removed only on request.
VOLUMES = ("v1", "PersistentVolumeClaim")
# Immutable fields of a spec: to change one, the object is recreated.
FIXED = {
    "StatefulSet": ("serviceName", "podManagementPolicy", "selector", "volumeClaimTemplates"),
    "PersistentVolumeClaim": ("accessModes", "storageClassName"),
}


def everything(env: Environment) -> list[Object]:
    """Return all objects of an environment, in the order of creation."""
    return [
        *rights.account(env),
        *rights.constraints(env),
        *rights.binding(env),
        secret.empty(env),
        *config.maps(env),
        *build.image(env),
        *network.headless(env),
        network.policy(env),
        *storage.claims(env),
        *pods.all_of(env),
        *access.services(env),
        *access.external_access(env),
    ]
