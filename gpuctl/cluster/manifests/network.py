"""Network of the pods: the headless Service that names them, and the NetworkPolicy."""

from __future__ import annotations

from gpuctl.cluster.environment import KIND, OWNER, Environment, Object

NETWORK = "network"
# OpenShift sets this label on the namespace of its routers, even if they use the host network.
OF_ROUTERS = {"policy-group.network.openshift.io/ingress": ""}


def headless(env: Environment) -> list[Object]:
    """Name each pod in DNS even before it is ready: ranks wait for each other. A standalone pod needs none."""
    if env.single:
        return []
    ports = [port(env, word) for word in ("master", "ssh")]
    spec = {
        "type": "ClusterIP",
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": env.selector,
        "ports": ports,
    }
    return [{"apiVersion": "v1", "kind": "Service", "metadata": env.meta(env.name, NETWORK), "spec": spec}]


def port(env: Environment, word: str) -> Object:
    """Return a Service's port that targets the pods' port of that name."""
    return {"name": word, "port": getattr(env.cluster.ports, word), "targetPort": word, "protocol": "TCP"}


def policy(env: Environment) -> Object:
    """Allow all traffic between the environment's pods, because ranks choose their ports dynamically; from outside only
    exposed ports. TensorBoard and the debugger stay closed: forwards arrive from the node, which no policy blocks."""
    members = {KIND: "ml-environment", OWNER: env.name}
    rules: list[Object] = [{"from": [{"podSelector": {"matchLabels": members}}]}]
    if env.cluster.ports.expose:
        ports = [{"port": word, "protocol": "TCP"} for word in env.cluster.ports.expose]
        rules.append({"from": _outside(env), "ports": ports})
    spec = {"podSelector": {"matchLabels": members}, "policyTypes": ["Ingress"], "ingress": rules}
    meta = env.meta(env.name, NETWORK)
    return {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": meta, "spec": spec}


def _outside(env: Environment) -> list[Object]:
    ingress = env.cluster.ports.ingress
    if ingress is None:
        return [{"namespaceSelector": {"matchLabels": dict(OF_ROUTERS)}}]
    if ingress.from_namespace:
        return [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": ingress.from_namespace}}}]
    return [{"ipBlock": {"cidr": addresses}} for addresses in ingress.from_addresses]
