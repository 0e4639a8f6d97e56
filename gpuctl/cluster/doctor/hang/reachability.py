"""Reachability between pods: hostfile, DNS names, ssh, and the rendezvous port."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuctl.cluster.doctor.model import Facts
from gpuctl.cluster.manifests import config
from gpuctl.core.text import named
from gpuctl.domain.findings import Finding, fail, or_ok, unknown, warn

OPEN, REFUSED = "open", "refused"
POLICY = "check NetworkPolicies that may block it: `kubectl get networkpolicy`; gpuctl's own admits all its pods"


def hostfile(facts: Facts) -> list[Finding]:
    """Check that every pod has the current hostfile."""
    check, expected, findings = "hostfile", config.hostfile(facts.env), []
    for name, inside in facts.answering("network").items():
        text = inside.get("network", "hostfile")
        if text is None:
            findings.append(
                fail(check, f"Pod {name}", "it has no hostfile (/job/hostfile)", "run `gpuctl cluster deploy`")
            )
        elif text != expected and _hosts(text) == _hosts(expected):
            message = "its hostfile lists the right hosts, but its slots differ from the cluster file's GPUs per node"
            findings.append(
                warn(check, f"Pod {name}", message, "`gpuctl cluster deploy`, if the cluster file is right")
            )
        elif text != expected:
            message = (
                f"its hostfile is stale: it lists {len(_hosts(text))} hosts, the environment has {facts.env.nodes}"
            )
            hint = "after scaling, the update takes a minute or two; if it does not arrive, `gpuctl cluster deploy`"
            findings.append(fail(check, f"Pod {name}", message, hint))
    return or_ok(check, facts.env.name, findings) if facts.answering("network") else []


def _hosts(text: str) -> list[str]:
    return [line.split()[0] for line in text.splitlines() if line.split()]


def names(facts: Facts) -> list[Finding]:
    """Check that each pod resolves the others' names to their real addresses."""
    check, findings = "names", []
    at = {facts.env.host(rank): facts.env.pod_name(rank) for rank in range(facts.env.nodes)}
    for name, inside in facts.answering("network").items():
        lost: dict[str, list[str]] = {}
        for host, addresses in (inside.get("network", "names") or {}).items():
            if isinstance(addresses, str):
                lost.setdefault(addresses, []).append(at.get(host, host))
            elif old := _elsewhere(facts, at.get(host, ""), addresses):
                message = f"DNS gives {named(addresses)} for {at[host]}, whose address is {old}"
                findings.append(
                    fail(check, f"Pod {name}", message, "a name server gives an outdated answer: wait a minute")
                )
        for why, who in lost.items():
            hint = "check that the cluster's name servers answer, and that the headless Service exists"
            findings.append(fail(check, f"Pod {name}", f"it cannot resolve {named(who)}: {why}", hint))
    return or_ok(check, facts.env.name, findings) if facts.answering("network") else []


def _elsewhere(facts: Facts, pod: str, addresses: list[str]) -> str:
    """Return the pod's real address, if its name does not resolve to it; else ""."""
    status: Mapping[str, Any] = (facts.pods.get(pod) or {}).get("status") or {}
    actual = [str(ip.get("ip")) for ip in status.get("podIPs") or []] or [str(status.get("podIP") or "")]
    alone = facts.env.single or not any(actual)
    return "" if alone or set(actual) & set(addresses) else named(actual)


def ssh(facts: Facts) -> list[Finding]:
    """Check that each sshd is reachable from the pods that tried it."""
    check, findings = "ssh", []
    lost: dict[tuple[str, str], list[str]] = {}
    for name, inside in facts.answering("network").items():
        for target, how in (inside.get("network", "ssh") or {}).items():
            if how != OPEN and not _nameless(facts, name):
                lost.setdefault((target, how), []).append(name)
    for (target, how), sources in sorted(lost.items()):
        if how == REFUSED:
            message = f"no sshd listens (port {facts.env.cluster.ports.ssh}): launchers that use ssh do not work"
            findings.append(
                warn(
                    check,
                    f"Pod {target}",
                    message,
                    "check that the image contains openssh-server; the pod's log has details",
                )
            )
        else:
            message = f"its sshd is unreachable from {named(sources)}: {how}"
            findings.append(fail(check, f"Pod {target}", message, POLICY))
    return or_ok(check, facts.env.name, findings) if facts.answering("network") else []


def master(facts: Facts) -> list[Finding]:
    """Check that the rendezvous port of the first pod is reachable from every pod, if something listens."""
    check, port = "master", facts.env.cluster.ports.master
    able = [name for name in facts.answering("network") if not _nameless(facts, name)]
    results = {name: facts.inside[name].get("network", "master") for name in able}
    known_results = {name: how for name, how in results.items() if how is not None}
    if not known_results:
        return []
    lost = {name: how for name, how in known_results.items() if how not in (OPEN, "connected", REFUSED)}
    if lost:
        first = facts.env.pod_name(0)
        return [
            fail(check, f"Pod {name}", f"it cannot reach {first}:{port}: {how}", POLICY) for name, how in lost.items()
        ]
    if all(how == REFUSED for how in known_results.values()):
        message = f"nothing listens on port {port} of the first pod, so reachability is not proved"
        return [unknown(check, facts.env.name, message, "normal for a job with another MASTER_PORT, or with MPI")]
    refused = [name for name, how in known_results.items() if how == REFUSED]
    hint = "ranks cannot meet there; or does the job use another MASTER_PORT?"
    return or_ok(
        check, facts.env.name, [warn(check, f"Pod {n}", f"port {port} refuses its connection", hint) for n in refused]
    )


def _nameless(facts: Facts, name: str) -> bool:
    """Return whether a pod fails to resolve names: then its connections prove nothing."""
    results = (facts.inside[name].get("network", "names") or {}).values()
    return any(isinstance(result, str) for result in results)
