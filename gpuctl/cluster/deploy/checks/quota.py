"""Preflight of quotas and limit ranges: what is left in the namespace against what the deployment adds."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal

from gpuctl.cluster.deploy.cluster_snapshot import ClusterSnapshot
from gpuctl.cluster.environment import CONTAINER, Environment, Object
from gpuctl.cluster.manifests import pods, storage
from gpuctl.domain.findings import Finding, Verdict
from gpuctl.domain.quantity import amount, at_least

# Our pods have no deadline, and their requests equal their limits: the first scopes include them, the others do not.
FINISHED = ("Succeeded", "Failed")
IN_SCOPE, OUT_OF_SCOPE = {"NotTerminating", "NotBestEffort"}, {"Terminating", "BestEffort"}


def quota(env: Environment, snapshot: ClusterSnapshot) -> list[Finding]:
    """Report each quota that the deployment would exceed."""
    every = [*snapshot.quotas.value, *(_as_quota(shared) for shared in snapshot.shared_quotas.value)]
    reads = [snapshot.quotas, snapshot.shared_quotas]
    if every:  # existing pods and claims are counted by the quota already
        reads += [snapshot.env_pods, snapshot.claims]
    whys = dict.fromkeys(read.why for read in reads if read.why)
    findings = [Finding("quota", env.namespace, Verdict.UNKNOWN, why) for why in whys]
    if not (snapshot.env_pods.why or snapshot.claims.why):
        growth_amounts = growth(env, snapshot)
        findings += [finding for quota_object in every for finding in _of(quota_object, growth_amounts)]
    return findings or [Finding("quota", env.namespace, Verdict.OK, "" if every else "it has none")]


def _as_quota(shared: Object) -> Object:
    """Convert OpenShift's cluster resource quota to the form of a namespace's quota."""
    spec, status = (shared.get("spec") or {}).get("quota") or {}, (shared.get("status") or {}).get("total") or {}
    return {"kind": "ClusterResourceQuota", "metadata": shared["metadata"], "spec": spec, "status": status}


def limits(env: Environment, snapshot: ClusterSnapshot) -> list[Finding]:
    """Compare the namespace's limit ranges with what a pod requests."""
    if snapshot.limits.why:
        return [Finding("limits", env.namespace, Verdict.UNKNOWN, snapshot.limits.why)]
    request = of_a_pod(env)
    return [
        Finding(
            "limits",
            f"LimitRange {limit_range['metadata']['name']}",
            Verdict.FAIL,
            message,
            hint="correct resources, or ask for more",
        )
        for limit_range in snapshot.limits.value
        for message in _above(limit_range, request)
    ]


def _above(limit_range: Object, request: Mapping[str, str]) -> list[str]:
    return [
        f"a {limit['type'].lower()} may have {most} of {name}, and ours requests {request[name]}"
        for limit in limit_range["spec"].get("limits") or []
        for name, most in (limit.get("max") or {}).items()
        if limit.get("type") in ("Container", "Pod") and name in request and not at_least(most, request[name])
    ]


def _of(quota: Object, growth_amounts: Mapping[str, Decimal]) -> list[Finding]:
    name, spec = f"{quota.get('kind', 'ResourceQuota')} {quota['metadata']['name']}", quota.get("spec") or {}
    scopes = set(spec.get("scopes") or [])
    if scopes & OUT_OF_SCOPE:
        return []
    if scopes - IN_SCOPE or spec.get("scopeSelector"):
        return [
            Finding("quota", name, Verdict.UNKNOWN, "it applies to some pods only, and it is not known whether to ours")
        ]
    status = quota.get("status") or {}
    hard, used = status.get("hard") or spec.get("hard") or {}, status.get("used") or {}
    return [
        finding
        for key, most in hard.items()
        if (finding := _passed(name, key, most, used.get(key, "0"), growth_amounts))
    ]


def _passed(name: str, key: str, most: str, used: str, growth_amounts: Mapping[str, Decimal]) -> Finding | None:
    more, limit, now = growth_amounts.get(key), amount(most), amount(used)
    if not more or limit is None or now is None or now + more <= limit:
        return None
    message = f"{key}: {_shown(more)} more are needed, and {used} of {most} is in use"
    return Finding(
        "quota", name, Verdict.FAIL, message, hint="wait until others end, ask for more, or use fewer --nodes"
    )


def _shown(number: Decimal) -> str:
    whole = int(number)
    for unit, factor in (("Ti", 2**40), ("Gi", 2**30), ("Mi", 2**20)):
        if whole >= factor and whole % factor == 0:
            return f"{whole // factor}{unit}"
    return f"{number.normalize():f}"


def growth(env: Environment, snapshot: ClusterSnapshot) -> dict[str, Decimal]:
    """Return the amounts that the missing pods and volumes add to a quota, by the quota's keys."""
    mine = [pod for pod in snapshot.env_pods.value if (pod.get("status") or {}).get("phase") not in FINISHED]
    new_pods = max(0, env.nodes - len(mine))
    amounts = {"pods": Decimal(new_pods), "count/pods": Decimal(new_pods)}
    for name, size in of_a_pod(env).items():
        total = (amount(size) or Decimal(0)) * new_pods
        amounts |= {f"requests.{name}": total, f"limits.{name}": total}
        amounts |= {name: total} if name in ("cpu", "memory") else {}
    return {**amounts, **_volumes(env, snapshot)}


def of_a_pod(env: Environment) -> dict[str, str]:
    """Return a pod's resources: its requests equal its limits."""
    spec = (pods.single(env) if env.single else pods.stateful_set(env)["spec"]["template"])["spec"]
    (main,) = (container for container in spec["containers"] if container["name"] == CONTAINER)
    return dict(main["resources"]["limits"])


def _volumes(env: Environment, snapshot: ClusterSnapshot) -> dict[str, Decimal]:
    existing = {claim["metadata"]["name"] for claim in snapshot.claims.value}
    shared = {claim["metadata"]["name"]: claim for claim in storage.claims(env)}
    new = [claim for name, claim in {**shared, **storage.of_templates(env)}.items() if name not in existing]
    size = sum((amount(claim["spec"]["resources"]["requests"]["storage"]) or Decimal(0) for claim in new), Decimal(0))
    of_class = f"{storage.storage_class(env)}.storageclass.storage.k8s.io"
    count = Decimal(len(new))
    return {
        "persistentvolumeclaims": count,
        "requests.storage": size,
        f"{of_class}/requests.storage": size,
        f"{of_class}/persistentvolumeclaims": count,
    }
