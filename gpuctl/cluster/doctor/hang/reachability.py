"""Whether pods find each other: the hostfile, names, ssh, and the rendezvous port."""

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
    check, expected, findings = "hostfile", config.hostfile(facts.env), []
    for name, inside in facts.telling("network").items():
        text = inside.get("network", "hostfile")
        if text is None:
            findings.append(fail(check, f"Pod {name}", "it has no hostfile (/job/hostfile)", "`gpuctl cluster deploy`"))
        elif text != expected and _hosts(text) == _hosts(expected):
            message = "its hostfile has the right hosts, and other numbers of slots than the cluster file has GPUs now"
            findings.append(
                warn(check, f"Pod {name}", message, "`gpuctl cluster deploy`, where the cluster file is right")
            )
        elif text != expected:
            message = (
                f"its hostfile is stale: it lists {len(_hosts(text))} hosts, the environment has {facts.env.nodes}"
            )
            hint = "after a scale it takes a minute or two to arrive; `gpuctl cluster deploy` where it does not"
            findings.append(fail(check, f"Pod {name}", message, hint))
    return or_ok(check, facts.env.name, findings) if facts.telling("network") else []


def _hosts(text: str) -> list[str]:
    return [line.split()[0] for line in text.splitlines() if line.split()]


def names(facts: Facts) -> list[Finding]:
    """Each pod finds each other one by its name, at the address that it has."""
    check, findings = "names", []
    at = {facts.env.host(rank): facts.env.pod_name(rank) for rank in range(facts.env.nodes)}
    for name, inside in facts.telling("network").items():
        lost: dict[str, list[str]] = {}
        for host, addresses in (inside.get("network", "names") or {}).items():
            if isinstance(addresses, str):
                lost.setdefault(addresses, []).append(at.get(host, host))
            elif old := _elsewhere(facts, at.get(host, ""), addresses):
                message = f"{at[host]} has in DNS the address {named(addresses)}, and is at {old}"
                findings.append(fail(check, f"Pod {name}", message, "a name server gives an old answer: wait a minute"))
        for why, who in lost.items():
            hint = "do the cluster's name servers answer, and is the headless Service there?"
            findings.append(fail(check, f"Pod {name}", f"it does not find {named(who)} by name: {why}", hint))
    return or_ok(check, facts.env.name, findings) if facts.telling("network") else []


def _elsewhere(facts: Facts, pod: str, addresses: list[str]) -> str:
    """The pod's real address, if it is none of those its name has."""
    status: Mapping[str, Any] = (facts.pods.get(pod) or {}).get("status") or {}
    actual = [str(ip.get("ip")) for ip in status.get("podIPs") or []] or [str(status.get("podIP") or "")]
    alone = facts.env.single or not any(actual)
    return "" if alone or set(actual) & set(addresses) else named(actual)


def ssh(facts: Facts) -> list[Finding]:
    """Each sshd is reached by the pods before it."""
    check, findings = "ssh", []
    lost: dict[tuple[str, str], list[str]] = {}
    for name, inside in facts.telling("network").items():
        for target, how in (inside.get("network", "ssh") or {}).items():
            if how != OPEN and not _nameless(facts, name):
                lost.setdefault((target, how), []).append(name)
    for (target, how), sources in sorted(lost.items()):
        if how == REFUSED:
            message = f"no sshd listens there (port {facts.env.cluster.ports.ssh}): launchers that use ssh do not work"
            findings.append(warn(check, f"Pod {target}", message, "is openssh-server in the image? its log says more"))
        else:
            message = f"its sshd is not reached from {named(sources)}: {how}"
            findings.append(fail(check, f"Pod {target}", message, POLICY))
    return or_ok(check, facts.env.name, findings) if facts.telling("network") else []


def master(facts: Facts) -> list[Finding]:
    """The first rank's port is reached from every pod, where something listens."""
    check, port = "master", facts.env.cluster.ports.master
    able = [name for name in facts.telling("network") if not _nameless(facts, name)]
    results = {name: facts.inside[name].get("network", "master") for name in able}
    known_results = {name: how for name, how in results.items() if how is not None}
    if not known_results:
        return []
    lost = {name: how for name, how in known_results.items() if how not in (OPEN, "connected", REFUSED)}
    if lost:
        first = facts.env.pod_name(0)
        return [
            fail(check, f"Pod {name}", f"it does not reach {first}:{port}: {how}", POLICY) for name, how in lost.items()
        ]
    if all(how == REFUSED for how in known_results.values()):
        message = f"nothing listens at port {port} of the first pod: whether ranks reach it is not proved"
        return [unknown(check, facts.env.name, message, "a job with another MASTER_PORT, or by MPI, meets elsewhere")]
    refused = [name for name, how in known_results.items() if how == REFUSED]
    hint = "a rank that meets there does not; is the job of another MASTER_PORT?"
    return or_ok(check, facts.env.name, [warn(check, f"Pod {n}", f"port {port} refuses it", hint) for n in refused])


def _nameless(facts: Facts, name: str) -> bool:
    """Return whether it resolves no names: then nothing is known about its connections."""
    results = (facts.inside[name].get("network", "names") or {}).values()
    return any(isinstance(result, str) for result in results)
