"""Volumes: of all pods together, or of each pod, and what is bound where."""

from __future__ import annotations

from gpuctl.cluster.environment import Environment, Object

STORAGE = "storage"
WHERE = {"workspace": "/workspace", "datasets": "/datasets"}


def claims(env: Environment) -> list[Object]:
    """The volumes that all pods share, or that a single pod has; none where each of many has its own."""
    if env.cluster.storage.mode != "rwx" and not env.single:
        return []
    return [_claim(env, volume, env.meta(f"{env.name}-{volume}", STORAGE)) for volume in WHERE]


def templates(env: Environment) -> list[Object]:
    """The volumes that each pod of a StatefulSet gets of its own; they stay when it goes."""
    if env.cluster.storage.mode == "rwx" or env.single:
        return []
    # No kind or version here: the server adds them, and a second apply would see a change.
    labels = {**env.selector, **env.labels}
    return [{"metadata": {"name": volume, "labels": dict(labels)}, "spec": _spec(env, volume)} for volume in WHERE]


def of_templates(env: Environment) -> dict[str, Object]:
    """The template of each claim that a StatefulSet makes, by the name that it gives the claim."""
    return {
        f"{template['metadata']['name']}-{env.pod_name(rank)}": template
        for template in templates(env)
        for rank in range(env.nodes)
    }


def _claim(env: Environment, volume: str, meta: Object) -> Object:
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": _spec(env, volume)}


def storage_class(env: Environment) -> str:
    """The one that all volumes are of."""
    storage = env.cluster.storage
    return storage.class_rwx if storage.mode == "rwx" else storage.class_rwo


def _spec(env: Environment, volume: str) -> Object:
    storage = env.cluster.storage
    return {
        "accessModes": ["ReadWriteMany" if storage.mode == "rwx" else "ReadWriteOnce"],
        "storageClassName": storage_class(env),
        "resources": {"requests": {"storage": getattr(storage, f"{volume}_size")}},
    }


def volumes(env: Environment) -> list[Object]:
    """What a pod's spec says of them; of claim templates it says nothing."""
    if templates(env):
        return []
    return [{"name": name, "persistentVolumeClaim": {"claimName": f"{env.name}-{name}"}} for name in WHERE]


def mounts(env: Environment) -> list[Object]:
    """The volumes, and folders of them bound to more paths."""
    whole = [{"name": volume, "mountPath": path} for volume, path in WHERE.items()]
    bound = []
    for place, source in env.cluster.storage.folders.items():
        volume, _, folder = source.partition("/")
        bound.append({"name": volume, "mountPath": place, "subPath": folder})
    return [*whole, *bound]
