"""External access to VS Code and Jupyter of the first pod: Services, and Routes or an Ingress."""

from __future__ import annotations

from gpuctl.cluster.clusterfile.model import Ingress
from gpuctl.cluster.environment import Environment, Object
from gpuctl.cluster.manifests import network

ACCESS = "access"
POD_NAME = "statefulset.kubernetes.io/pod-name"
# Redirected, so that no password is ever sent unencrypted.
EDGE = {"termination": "edge", "insecureEdgeTerminationPolicy": "Redirect"}


def services(env: Environment) -> list[Object]:
    """Return a Service for each exposed editor, of the first pod only, where they run."""
    return [_service(env, word) for word in env.cluster.ports.expose]


def _service(env: Environment, word: str) -> Object:
    first = {} if env.single else {POD_NAME: env.pod_name(0)}
    spec = {"type": "ClusterIP", "selector": {**env.selector, **first}, "ports": [network.port(env, word)]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": env.meta(f"{env.name}-{word}", ACCESS), "spec": spec}


def external_access(env: Environment) -> list[Object]:
    """Return Routes on OpenShift, one Ingress elsewhere; empty if nothing is exposed."""
    exposed, ingress = env.cluster.ports.expose, env.cluster.ports.ingress
    if env.openshift:
        return [_route(env, word) for word in exposed]
    return [_ingress(env, ingress)] if exposed and ingress else []


def _route(env: Environment, word: str) -> Object:
    name = f"{env.name}-{word}"
    # Editors keep a connection open for as long as a person works.
    meta = env.meta(name, ACCESS, {"haproxy.router.openshift.io/timeout": "1h"})
    spec = {
        "to": {"kind": "Service", "name": name, "weight": 100},
        "port": {"targetPort": word},
        "tls": dict(EDGE),
        "wildcardPolicy": "None",
    }
    return {"apiVersion": "route.openshift.io/v1", "kind": "Route", "metadata": meta, "spec": spec}


def _ingress(env: Environment, ingress: Ingress) -> Object:
    hosts = [f"{word}-{env.name}.{ingress.domain}" for word in env.cluster.ports.expose]
    spec: Object = {
        **({"ingressClassName": ingress.ingress_class} if ingress.ingress_class else {}),
        "rules": [_rule(env, host, word) for host, word in zip(hosts, env.cluster.ports.expose, strict=True)],
        **({"tls": [{"hosts": hosts, "secretName": ingress.tls_secret}]} if ingress.tls_secret else {}),
    }
    meta = env.meta(env.name, ACCESS, ingress.annotations)
    return {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": meta, "spec": spec}


def _rule(env: Environment, host: str, word: str) -> Object:
    backend = {"service": {"name": f"{env.name}-{word}", "port": {"name": word}}}
    return {"host": host, "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]}}
