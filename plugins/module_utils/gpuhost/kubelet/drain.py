"""Whether a host's node is cordoned and empty, by the API server, with the kubelet's credentials."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..host import Host

PODS = (
    r'{range .items[*]}{.metadata.namespace}/{.metadata.name}{"\t"}{.metadata.ownerReferences[*].kind}{"\t"}'
    r'{.metadata.annotations.kubernetes\.io/config\.mirror}{"\t"}{.status.phase}{"\n"}{end}'
)
SHOWN = 5
DRAIN = "kubectl drain {} --ignore-daemonsets"


def why_not(host: Host, options: Mapping[str, str]) -> str:
    """Why the node cannot be changed now; "" if it is cordoned and has no pods but DaemonSets' and static ones.

    `options`: of the kubelet's command line. Another kubeconfig than its --kubeconfig may be of another cluster.
    """
    config = options.get("--kubeconfig", "")
    if not config or not host.exists(config):
        lacking = f"the kubelet's --kubeconfig={config} is missing" if config else "the kubelet has no --kubeconfig"
        return f"whether its node is drained is not known: {lacking}"
    if not host.which("kubectl"):
        return "whether its node is drained is not known: install kubectl on this host, which asks the API server"
    name = options.get("--hostname-override") or (host.value("/proc/sys/kernel/hostname") or "").lower()
    with host.scratch_folder() as cache:  # without a home, kubectl leaves its cache in the current folder
        get = ("kubectl", f"--kubeconfig={host.real(config)}", f"--cache-dir={cache}", "--request-timeout=10s", "get")
        return _not_cordoned(host, name, get) or _not_empty(host, name, get)


def _not_cordoned(host: Host, name: str, get: Sequence[str]) -> str:
    node = host.run(*get, "node", name, "-o", "jsonpath={.metadata.name} {.spec.unschedulable}")
    if not node.ok or node.out.split()[:1] != [name]:
        return f"whether its node {name} is drained is not known: {node.last_line}"
    return "" if node.out.split()[1:] == ["true"] else f"its node {name} is not cordoned: {DRAIN.format(name)}"


def _not_empty(host: Host, name: str, get: Sequence[str]) -> str:
    of_node = f"--field-selector=spec.nodeName={name}"
    listed = host.run(*get, "pods", "--all-namespaces", of_node, "-o", f"jsonpath={PODS}")
    if not listed.ok:
        return f"which pods node {name} has is not known: {listed.last_line}"
    left = [pod for pod in map(_evicted, listed.out.splitlines()) if pod]
    more = f" and {len(left) - SHOWN} more" if len(left) > SHOWN else ""
    return f"its node {name} has pods: {', '.join(left[:SHOWN])}{more}: {DRAIN.format(name)}" if left else ""


def _evicted(line: str) -> str:
    """Namespace and name of a pod that a drain evicts; "" for one that it leaves, or that has ended."""
    name, owners, mirror, phase = (line.split("\t") + [""] * 3)[:4]
    return "" if "DaemonSet" in owners.split() or mirror or phase in ("Succeeded", "Failed") else name
