"""Whether the pods find their account and their image."""

from __future__ import annotations

from gpuctl.cluster.deploy.cluster_snapshot import Read, There
from gpuctl.cluster.environment import Environment, Object
from gpuctl.cluster.manifests import build
from gpuctl.domain.findings import Finding, Verdict
from gpuctl.domain.pod_status import is_ready


def account(env: Environment, there: There) -> list[Finding]:
    """One that the file names; ours is made."""
    name = env.cluster.security.service_account
    hint = "leave out security.service_account"
    return [_is_there("account", f"ServiceAccount {name}", there.account, hint)] if name else []


def pull_secret(env: Environment, there: There) -> list[Finding]:
    """What the image is pulled with."""
    name = env.cluster.image.pull_secret
    hint = f"`kubectl create secret docker-registry {name}` in {env.namespace}, or mend image.pull_secret"
    return [_is_there("pull secret", f"Secret {name}", there.pull_secret, hint)] if name else []


def _is_there(check: str, subject: str, read: Read[Object | None], hint: str) -> Finding:
    if read.why:
        return Finding(check, subject, Verdict.UNKNOWN, read.why)
    if read.value is None:
        return Finding(check, subject, Verdict.FAIL, "it is not there", hint=hint)
    return Finding(check, subject, Verdict.OK)


def image(env: Environment, there: There) -> list[Finding]:
    """Whether it can be pulled is known where a node has it already, or where the cluster builds it."""
    name = build.reference(env)
    if env.cluster.image.build:
        return [_built(there, name)]
    if runs := [pod["metadata"]["name"] for pod in there.pods.value if _runs(pod, name)]:
        return [Finding("image", name, Verdict.OK, f"{runs[0]} runs it")]
    if there.nodes.why:
        return [Finding("image", name, Verdict.UNKNOWN, there.nodes.why)]
    having = [
        str(node["metadata"]["name"])
        for node in there.nodes.value
        for each in node["status"].get("images") or []
        if _same(name, each.get("names") or [])
    ]
    if having:
        return [Finding("image", name, Verdict.OK, f"{having[0]} has it already")]
    words = "no node has it yet: whether it can be pulled shows when the pods start"
    return [Finding("image", name, Verdict.UNKNOWN, words)]


def _runs(pod: Object, name: str) -> bool:
    return is_ready(pod) and any(each.get("image") == name for each in pod["spec"]["containers"])


def _same(name: str, known: list[str]) -> bool:
    last = name.rpartition("/")[2]
    wanted = name if "@" in last or ":" in last else f"{name}:latest"
    return wanted in known or f"docker.io/{wanted}" in known or f"docker.io/library/{wanted}" in known


def _built(there: There, name: str) -> Finding:
    if there.stream.why:
        return Finding("image", name, Verdict.UNKNOWN, there.stream.why)
    tags = ((there.stream.value or {}).get("status") or {}).get("tags") or []
    if any(each.get("tag") == "latest" and each.get("items") for each in tags):
        return Finding("image", name, Verdict.OK)
    words = "it was not built yet; the pods wait until it is there"
    return Finding("image", name, Verdict.WARN, words, hint="`gpuctl cluster build` makes it")
