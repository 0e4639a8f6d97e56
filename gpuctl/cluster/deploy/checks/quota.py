"""What the namespace's quotas leave, against what comes new."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal

from gpuctl.cluster.deploy.cluster_snapshot import There
from gpuctl.cluster.deploy.quantity import amount, at_least
from gpuctl.cluster.environment import CONTAINER, Environment, Object
from gpuctl.cluster.manifests import pods, storage
from gpuctl.domain.findings import Finding, Verdict

# Our pods have no deadline, and requests that are their limits: these scopes take them in, and those leave them out.
ENDED = ("Succeeded", "Failed")
IN_SCOPE, OUT_OF_SCOPE = {"NotTerminating", "NotBestEffort"}, {"Terminating", "BestEffort"}


def quota(env: Environment, there: There) -> list[Finding]:
    """One finding for each limit that would be passed."""
    every = [*there.quotas.value, *(_as_quota(each) for each in there.shared_quotas.value)]
    reads = [there.quotas, there.shared_quotas]
    if every:  # of what a quota has counted already, ours is not counted again
        reads += [there.own, there.claims]
    whys = dict.fromkeys(read.why for read in reads if read.why)
    found = [Finding("quota", env.namespace, Verdict.UNKNOWN, why) for why in whys]
    if not (there.own.why or there.claims.why):
        wanted = growth(env, there)
        found += [each for one in every for each in _of(one, wanted)]
    return found or [Finding("quota", env.namespace, Verdict.OK, "" if every else "it has none")]


def _as_quota(shared: Object) -> Object:
    """OpenShift's quota over several namespaces, in the form of one."""
    spec, status = (shared.get("spec") or {}).get("quota") or {}, (shared.get("status") or {}).get("total") or {}
    return {"kind": "ClusterResourceQuota", "metadata": shared["metadata"], "spec": spec, "status": status}


def limits(env: Environment, there: There) -> list[Finding]:
    """What the namespace allows a single container or pod, against what ours asks for."""
    if there.limits.why:
        return [Finding("limits", env.namespace, Verdict.UNKNOWN, there.limits.why)]
    asked = of_a_pod(env)
    return [
        Finding(
            "limits",
            f"LimitRange {each['metadata']['name']}",
            Verdict.FAIL,
            words,
            hint="mend resources, or ask for more",
        )
        for each in there.limits.value
        for words in _above(each, asked)
    ]


def _above(found: Object, asked: Mapping[str, str]) -> list[str]:
    return [
        f"a {each['type'].lower()} may have {most} of {name}, and ours asks for {asked[name]}"
        for each in found["spec"].get("limits") or []
        for name, most in (each.get("max") or {}).items()
        if each.get("type") in ("Container", "Pod") and name in asked and not at_least(most, asked[name])
    ]


def _of(found: Object, wanted: Mapping[str, Decimal]) -> list[Finding]:
    name, spec = f"{found.get('kind', 'ResourceQuota')} {found['metadata']['name']}", found.get("spec") or {}
    scopes = set(spec.get("scopes") or [])
    if scopes & OUT_OF_SCOPE:
        return []
    if scopes - IN_SCOPE or spec.get("scopeSelector"):
        return [Finding("quota", name, Verdict.UNKNOWN, "it holds for some pods only, and which is not known")]
    status = found.get("status") or {}
    hard, used = status.get("hard") or spec.get("hard") or {}, status.get("used") or {}
    return [each for key, most in hard.items() if (each := _passed(name, key, most, used.get(key, "0"), wanted))]


def _passed(name: str, key: str, most: str, used: str, wanted: Mapping[str, Decimal]) -> Finding | None:
    more, limit, now = wanted.get(key), amount(most), amount(used)
    if not more or limit is None or now is None or now + more <= limit:
        return None
    words = f"{key}: {_shown(more)} more are needed, and {used} of {most} is in use"
    return Finding(
        "quota", name, Verdict.FAIL, words, hint="wait until others end, ask for more, or take fewer --nodes"
    )


def _shown(number: Decimal) -> str:
    whole = int(number)
    for unit, factor in (("Ti", 2**40), ("Gi", 2**30), ("Mi", 2**20)):
        if whole >= factor and whole % factor == 0:
            return f"{whole // factor}{unit}"
    return f"{number.normalize():f}"


def growth(env: Environment, there: There) -> dict[str, Decimal]:
    """What a quota counts, of the pods and volumes that are not there yet."""
    mine = [each for each in there.own.value if (each.get("status") or {}).get("phase") not in ENDED]
    new_pods = max(0, env.nodes - len(mine))
    found = {"pods": Decimal(new_pods), "count/pods": Decimal(new_pods)}
    for name, size in of_a_pod(env).items():
        each = (amount(size) or Decimal(0)) * new_pods
        found |= {f"requests.{name}": each, f"limits.{name}": each}
        found |= {name: each} if name in ("cpu", "memory") else {}
    return {**found, **_volumes(env, there)}


def of_a_pod(env: Environment) -> dict[str, str]:
    """What a pod asks for, and may have."""
    spec = (pods.single(env) if env.single else pods.stateful_set(env)["spec"]["template"])["spec"]
    (main,) = (each for each in spec["containers"] if each["name"] == CONTAINER)
    return dict(main["resources"]["limits"])


def _volumes(env: Environment, there: There) -> dict[str, Decimal]:
    there_already = {each["metadata"]["name"] for each in there.claims.value}
    shared = {each["metadata"]["name"]: each for each in storage.claims(env)}
    new = [each for name, each in {**shared, **storage.of_templates(env)}.items() if name not in there_already]
    size = sum((amount(each["spec"]["resources"]["requests"]["storage"]) or Decimal(0) for each in new), Decimal(0))
    of_class = f"{storage.storage_class(env)}.storageclass.storage.k8s.io"
    count = Decimal(len(new))
    return {
        "persistentvolumeclaims": count,
        "requests.storage": size,
        f"{of_class}/requests.storage": size,
        f"{of_class}/persistentvolumeclaims": count,
    }
