"""Preflight of the service account, the pull secret and the image."""

from __future__ import annotations

from gpuctl.cluster.deploy.checks.not_installed import not_installed
from gpuctl.cluster.deploy.cluster_snapshot import ClusterSnapshot, Maybe
from gpuctl.cluster.environment import Environment, Object
from gpuctl.cluster.manifests import build
from gpuctl.domain.findings import Finding, Verdict
from gpuctl.domain.pod_status import is_ready


def account(env: Environment, snapshot: ClusterSnapshot) -> list[Finding]:
    """Check that the service account exists that the file names; without one, deploy creates its own."""
    name = env.cluster.security.service_account
    hint = "leave out security.service_account"
    return [_is_there("account", f"ServiceAccount {name}", snapshot.account, hint)] if name else []


def pull_secret(env: Environment, snapshot: ClusterSnapshot) -> list[Finding]:
    """Check that the image's pull secret exists."""
    name = env.cluster.image.pull_secret
    hint = f"`kubectl create secret docker-registry {name}` in {env.namespace}, or correct image.pull_secret"
    return [_is_there("pull secret", f"Secret {name}", snapshot.pull_secret, hint)] if name else []


def references(env: Environment, snapshot: ClusterSnapshot) -> list[Finding]:
    """Check that the objects exist which pods or storage of the file refer to: a pod waits for a missing one."""
    return [
        not_installed("references", reference.kind, reference.name, reference.field)
        if reference.kind in snapshot.unserved
        else _is_there(
            "references", f"{reference.kind} {reference.name}", read, f"create it, or correct {reference.field}"
        )
        for reference, read in snapshot.references.items()
    ]


def _is_there(check: str, subject: str, read: Maybe[Object | None], hint: str) -> Finding:
    if read.why:
        return Finding(check, subject, Verdict.UNKNOWN, read.why)
    if read.value is None:
        return Finding(check, subject, Verdict.FAIL, "it does not exist", hint=hint)
    return Finding(check, subject, Verdict.OK)


def image(env: Environment, snapshot: ClusterSnapshot) -> list[Finding]:
    """Check the image: it is known to be available if a node has it, or if the cluster has built it."""
    name = build.reference(env)
    if env.cluster.image.build:
        return [_built(snapshot, name)]
    if runs := [pod["metadata"]["name"] for pod in snapshot.pods.value if _runs(pod, name)]:
        return [Finding("image", name, Verdict.OK, f"{runs[0]} runs it")]
    if snapshot.nodes.why:
        return [Finding("image", name, Verdict.UNKNOWN, snapshot.nodes.why)]
    having = [
        str(node["metadata"]["name"])
        for node in snapshot.nodes.value
        for known_image in node["status"].get("images") or []
        if _same(name, known_image.get("names") or [])
    ]
    if having:
        return [Finding("image", name, Verdict.OK, f"{having[0]} has it already")]
    message = "no node has it yet: whether it can be pulled is known once the pods start"
    return [Finding("image", name, Verdict.UNKNOWN, message)]


def _runs(pod: Object, name: str) -> bool:
    return is_ready(pod) and any(container.get("image") == name for container in pod["spec"]["containers"])


def _same(name: str, known: list[str]) -> bool:
    last = name.rpartition("/")[2]
    tagged = name if "@" in last or ":" in last else f"{name}:latest"
    return tagged in known or f"docker.io/{tagged}" in known or f"docker.io/library/{tagged}" in known


def _built(snapshot: ClusterSnapshot, name: str) -> Finding:
    if snapshot.stream.why:
        return Finding("image", name, Verdict.UNKNOWN, snapshot.stream.why)
    tags = ((snapshot.stream.value or {}).get("status") or {}).get("tags") or []
    if any(tag.get("tag") == "latest" and tag.get("items") for tag in tags):
        return Finding("image", name, Verdict.OK)
    message = "it has not been built yet; the pods wait for it"
    return Finding("image", name, Verdict.WARN, message, hint="`gpuctl cluster build` builds it")
