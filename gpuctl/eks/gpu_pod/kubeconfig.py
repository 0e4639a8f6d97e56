"""A kubeconfig for an EKS cluster, whose credential program is `gpuctl eks token`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

API = "client.authentication.k8s.io/v1beta1"


def kubeconfig(name: str, cluster: Mapping[str, Any], program: Sequence[str]) -> str:
    """JSON, which is YAML, of a cluster as eks:DescribeCluster answers it. KeyError if it has no endpoint yet."""
    place = {"server": cluster["endpoint"], "certificate-authority-data": cluster["certificateAuthority"]["data"]}
    login = {"apiVersion": API, "command": program[0], "args": list(program[1:]), "interactiveMode": "Never"}
    plain = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": place}],
        "users": [{"name": name, "user": {"exec": login}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
    }
    return json.dumps(plain, indent=1) + "\n"


def credential(token: str, expires: datetime) -> str:
    """A token as a credential program prints it."""
    status = {"token": token, "expirationTimestamp": f"{expires:%Y-%m-%dT%H:%M:%SZ}"}
    return json.dumps({"apiVersion": API, "kind": "ExecCredential", "spec": {}, "status": status})
