"""Volumes shared by all pods or private to each pod, and their mounts."""

from __future__ import annotations

from gpuctl.cluster.environment import Environment, Object

STORAGE = "storage"
WHERE = {"workspace": "/workspace", "datasets": "/datasets"}


def created(env: Environment) -> list[str]:
    """Return the volumes that the environment creates: those whose place no existing claim takes."""
    return [volume for volume, path in WHERE.items() if path not in env.cluster.storage.claims]


def existing(env: Environment) -> dict[str, str]:
    """Return the volumes from existing claims: volume name -> claim. A claim mounted twice is one volume."""
    claimed = env.cluster.storage.claims
    ours = {volume: claimed[path] for volume, path in WHERE.items() if path in claimed}
    others = dict.fromkeys(claim for path, claim in claimed.items() if path not in WHERE.values())
    return {**ours, **{f"claim-{number}": claim for number, claim in enumerate(others)}}


def claims(env: Environment) -> list[Object]:
    """Return the claims shared by all pods, or of a standalone pod; empty if each pod has its own."""
    if env.cluster.storage.mode != "rwx" and not env.single:
        return []
    return [_claim(env, volume, env.meta(f"{env.name}-{volume}", STORAGE)) for volume in created(env)]


def templates(env: Environment) -> list[Object]:
    """Return the claim templates of a StatefulSet; their volumes outlive the pods."""
    if env.cluster.storage.mode == "rwx" or env.single:
        return []
    # No kind or version here: the server would add them, and a second apply would see a change.
    labels = {**env.selector, **env.labels}
    return [
        {"metadata": {"name": volume, "labels": dict(labels)}, "spec": _spec(env, volume)} for volume in created(env)
    ]


def of_templates(env: Environment) -> dict[str, Object]:
    """Return the template of each claim that the StatefulSet creates, by the claim's name."""
    return {
        f"{template['metadata']['name']}-{env.pod_name(rank)}": template
        for template in templates(env)
        for rank in range(env.nodes)
    }


def template_size(env: Environment, claim: str) -> str:
    """Return the desired size of a claim that the StatefulSet created for any pod, also a removed one; else ""."""
    sizes = {template["metadata"]["name"]: template["spec"] for template in templates(env)}
    volume, _, rank = claim.rpartition(f"-{env.name}-")
    return str(sizes[volume]["resources"]["requests"]["storage"]) if volume in sizes and rank.isdecimal() else ""


def desired_size(env: Environment, claim: str) -> str:
    """Return the desired size of a claim that we created, or ""."""
    shared = {obj["metadata"]["name"]: obj["spec"]["resources"]["requests"]["storage"] for obj in claims(env)}
    return str(shared.get(claim) or template_size(env, claim))


def _claim(env: Environment, volume: str, meta: Object) -> Object:
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": _spec(env, volume)}


def storage_class(env: Environment) -> str:
    """Return the storage class of all volumes."""
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
    """Return the volumes of a pod's spec; those of claim templates are added by the StatefulSet."""
    new = [] if templates(env) else created(env)
    claimed = {**{name: f"{env.name}-{name}" for name in new}, **existing(env)}
    return [{"name": name, "persistentVolumeClaim": {"claimName": claim}} for name, claim in claimed.items()]


def mounts(env: Environment) -> list[Object]:
    """Return the mounts of the volumes, and of their folders at further paths."""
    whole = [{"name": volume, "mountPath": path} for volume, path in WHERE.items()]
    bound = []
    for place, source in env.cluster.storage.folders.items():
        volume, _, folder = source.partition("/")
        bound.append({"name": volume, "mountPath": place, "subPath": folder})
    names = {claim: name for name, claim in existing(env).items() if name not in WHERE}
    others = [
        {"name": names[claim], "mountPath": path}
        for path, claim in env.cluster.storage.claims.items()
        if path not in WHERE.values()
    ]
    return [*whole, *bound, *others]
