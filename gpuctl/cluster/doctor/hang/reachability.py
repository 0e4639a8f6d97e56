"""Whether pods find each other: the hostfile, names, ssh, and the port that ranks meet at."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuctl.cluster.doctor.model import Facts
from gpuctl.cluster.manifests import config
from gpuctl.core.text import named
from gpuctl.domain.findings import Finding, fail, or_ok, unknown, warn

OPEN, REFUSED = "open", "refused"
POLICY = "does a NetworkPolicy stop it? `kubectl get networkpolicy`; ours lets all pods of the environment in"


def hostfile(facts: Facts) -> list[Finding]:
    """Every pod has that of today."""
    check, wanted, found = "hostfile", config.hostfile(facts.env), []
    for name, inside in facts.telling("network").items():
        text = inside.get("network", "hostfile")
        if text is None:
            found.append(fail(check, f"Pod {name}", "it has no hostfile (/job/hostfile)", "`gpuctl cluster deploy`"))
        elif text != wanted and _hosts(text) == _hosts(wanted):
            words = "its hostfile has the right hosts, and other numbers of slots than the cluster file has GPUs now"
            found.append(warn(check, f"Pod {name}", words, "`gpuctl cluster deploy`, where the cluster file is right"))
        elif text != wanted:
            words = f"its hostfile has {len(_hosts(text))} hosts, and is not the one of now ({facts.env.nodes})"
            hint = "after a scale it takes a minute or two to arrive; `gpuctl cluster deploy` where it does not"
            found.append(fail(check, f"Pod {name}", words, hint))
    return or_ok(check, facts.env.name, found) if facts.telling("network") else []


def _hosts(text: str) -> list[str]:
    return [line.split()[0] for line in text.splitlines() if line.split()]


def names(facts: Facts) -> list[Finding]:
    """Each pod finds each other one by its name, at the address that it has."""
    check, found = "names", []
    at = {facts.env.host(rank): facts.env.pod_name(rank) for rank in range(facts.env.nodes)}
    for name, inside in facts.telling("network").items():
        lost: dict[str, list[str]] = {}
        for host, told in (inside.get("network", "names") or {}).items():
            if isinstance(told, str):
                lost.setdefault(told, []).append(at.get(host, host))
            elif old := _elsewhere(facts, at.get(host, ""), told):
                words = f"{at[host]} has in DNS the address {named(told)}, and is at {old}"
                found.append(fail(check, f"Pod {name}", words, "a name server gives an old answer: wait a minute"))
        for why, who in lost.items():
            hint = "do the cluster's name servers answer, and is the headless Service there?"
            found.append(fail(check, f"Pod {name}", f"it does not find {named(who)} by name: {why}", hint))
    return or_ok(check, facts.env.name, found) if facts.telling("network") else []


def _elsewhere(facts: Facts, pod: str, told: list[str]) -> str:
    """Where the pod really is, when that is none of the addresses its name has."""
    status: Mapping[str, Any] = (facts.pods.get(pod) or {}).get("status") or {}
    own = [str(each.get("ip")) for each in status.get("podIPs") or []] or [str(status.get("podIP") or "")]
    alone = facts.env.single or not any(own)
    return "" if alone or set(own) & set(told) else named(own)


def ssh(facts: Facts) -> list[Finding]:
    """Each sshd is reached by the pods before it."""
    check, found = "ssh", []
    lost: dict[tuple[str, str], list[str]] = {}
    for name, inside in facts.telling("network").items():
        for target, how in (inside.get("network", "ssh") or {}).items():
            if how != OPEN and not _nameless(facts, name):
                lost.setdefault((target, how), []).append(name)
    for (target, how), sources in sorted(lost.items()):
        if how == REFUSED:
            words = f"no sshd listens there (port {facts.env.cluster.ports.ssh}): launchers that use ssh do not work"
            found.append(warn(check, f"Pod {target}", words, "is openssh-server in the image? its log says more"))
        else:
            words = f"its sshd is not reached from {named(sources)}: {how}"
            found.append(fail(check, f"Pod {target}", words, POLICY))
    return or_ok(check, facts.env.name, found) if facts.telling("network") else []


def master(facts: Facts) -> list[Finding]:
    """The first rank's port is reached from every pod, where something listens."""
    check, port = "master", facts.env.cluster.ports.master
    heard = [name for name in facts.telling("network") if not _nameless(facts, name)]
    ways = {name: facts.inside[name].get("network", "master") for name in heard}
    told = {name: how for name, how in ways.items() if how is not None}
    if not told:
        return []
    lost = {name: how for name, how in told.items() if how not in (OPEN, "connected", REFUSED)}
    if lost:
        first = facts.env.pod_name(0)
        return [
            fail(check, f"Pod {name}", f"it does not reach {first}:{port}: {how}", POLICY) for name, how in lost.items()
        ]
    if all(how == REFUSED for how in told.values()):
        words = f"nothing listens at port {port} of the first pod: whether ranks reach it is not proved"
        return [unknown(check, facts.env.name, words, "a job with another MASTER_PORT, or by MPI, meets elsewhere")]
    refused = [name for name, how in told.items() if how == REFUSED]
    hint = "a rank that meets there does not; is the job of another MASTER_PORT?"
    return or_ok(check, facts.env.name, [warn(check, f"Pod {n}", f"port {port} refuses it", hint) for n in refused])


def _nameless(facts: Facts, name: str) -> bool:
    """Whether it finds nobody by name: then nothing is known of the ways."""
    told = (facts.inside[name].get("network", "names") or {}).values()
    return any(isinstance(each, str) for each in told)
