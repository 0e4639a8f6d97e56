"""The draft's first section: the cluster's name, address, namespace and flavour."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import urlsplit

from gpuctl.cluster.clusterfile.patterns import NAME, URL
from gpuctl.cluster.discover.draft_yaml import Line, known, unknown
from gpuctl.cluster.discover.facts import Facts
from gpuctl.cluster.discover.fleet import labels

EKS_HOST, EKS_LABEL = ".eks.amazonaws.com", "eks.amazonaws.com/"
MOST = 40  # characters of a name


def about(facts: Facts) -> Iterator[Line]:
    yield from _name(facts)
    yield _api(facts)
    yield _namespace(facts)
    yield _flavour(facts)


def name_of(facts: Facts) -> str:
    """Derive a name from the cluster's name in the kubeconfig, which may be an ARN or a URL; empty if impossible."""
    name = facts.named.rpartition("/")[2].partition(":")[0].lower()
    name = re.sub(r"[^a-z0-9]+", "-", name.removeprefix("api-").removeprefix("api."))
    return re.sub(r"^[^a-z]+", "", name)[:MOST].strip("-")


def _name(facts: Facts) -> Iterator[Line]:
    if re.fullmatch(NAME.pattern, facts.file):
        yield known("cluster.name", facts.file, "From the file's name; you may change it.")
        return
    name = name_of(facts)
    if re.fullmatch(NAME.pattern, name):
        yield known("cluster.name", name, f"From the kubeconfig, which calls it {facts.named}; you may change it.")
    else:
        why = f"the kubeconfig calls it {facts.named!r}, which cannot be used as a name"
        yield unknown("cluster.name", why, f"a name: {NAME.shape}", needed=True)


def _api(facts: Facts) -> Line:
    at = urlsplit(facts.server)
    url = f"{at.scheme}://{at.netloc}"
    if not re.fullmatch(URL.pattern, url):
        why = f"the kubeconfig leads to {facts.server}"
        return unknown("cluster.api", why, f"{URL.shape}", needed=True)
    path = f" Its path {at.path} is left out: only host and port are compared." if at.path.strip("/") else ""
    return known("cluster.api", url, f"From the kubeconfig. A kubeconfig that leads elsewhere is refused.{path}")


def _namespace(facts: Facts) -> Line:
    name, path = facts.namespace, "cluster.namespace"
    if name == "default" or name.startswith(("kube-", "openshift-")):
        why = f"the context's namespace is {name}, which is reserved for the cluster"
        return unknown(path, why, "a namespace of yours, or run it again with --namespace", needed=True)
    if facts.space.why:
        return known(
            path, name, f"From --namespace or the context. It is not known whether it exists: {facts.space.why}."
        )
    if facts.space.value is None:
        make = "oc new-project" if facts.openshift else "kubectl create namespace"
        return known(path, name, f"From --namespace or the context. It does not exist yet: `{make} {name}`.")
    return known(path, name, "From --namespace or the context; it exists.")


def _flavour(facts: Facts) -> Line:
    path = "cluster.flavour"
    if facts.openshift:
        return known(path, "openshift", "It serves security.openshift.io and route.openshift.io.")
    if (urlsplit(facts.server).hostname or "").endswith(EKS_HOST):
        return known(path, "eks", f"Its API is at {EKS_HOST[1:]}, and it serves no OpenShift kinds.")
    marked = [node for node in facts.nodes.value if any(key.startswith(EKS_LABEL) for key in labels(node))]
    if marked:
        return known(path, "eks", f"{len(marked)} nodes have labels of {EKS_LABEL}, and it serves no OpenShift kinds.")
    nodes = f"nodes cannot be read: {facts.nodes.why}" if facts.nodes.why else f"no node has a label of {EKS_LABEL}"
    return known(path, "kubernetes", f"It serves no OpenShift kinds, its API is not at {EKS_HOST[1:]}, and {nodes}.")
