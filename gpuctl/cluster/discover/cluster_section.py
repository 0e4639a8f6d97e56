"""The draft's first section: which cluster it is, and what kind of one."""

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
    """A name from what the kubeconfig calls the cluster: of an ARN and a URL the telling part; empty where none is."""
    name = facts.named.rpartition("/")[2].partition(":")[0].lower()
    name = re.sub(r"[^a-z0-9]+", "-", name.removeprefix("api-").removeprefix("api."))
    return re.sub(r"^[^a-z]+", "", name)[:MOST].strip("-")


def _name(facts: Facts) -> Iterator[Line]:
    if re.fullmatch(NAME.pattern, facts.file):
        yield known("cluster.name", facts.file, "As the file is called; yours to change.")
        return
    name = name_of(facts)
    if re.fullmatch(NAME.pattern, name):
        yield known("cluster.name", name, f"From the kubeconfig, which calls it {facts.named}; yours to change.")
    else:
        why = f"the kubeconfig calls it {facts.named!r}, which makes no name"
        yield unknown("cluster.name", why, f"a name of your own: {NAME.shape}", needed=True)


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
        why = f"the context's namespace is {name}, the cluster's own, where no environment is made"
        return unknown(path, why, "a namespace of yours, or draft again with --namespace", needed=True)
    if facts.space.why:
        return known(
            path, name, f"As asked for, or of the context. Whether it is there is not known: {facts.space.why}."
        )
    if facts.space.value is None:
        make = "oc new-project" if facts.openshift else "kubectl create namespace"
        return known(path, name, f"As asked for, or of the context. It is not there yet: `{make} {name}`.")
    return known(path, name, "As asked for, or of the context; it is there.")


def _flavour(facts: Facts) -> Line:
    path = "cluster.flavour"
    if facts.openshift:
        return known(path, "openshift", "It serves security.openshift.io and route.openshift.io.")
    if (urlsplit(facts.server).hostname or "").endswith(EKS_HOST):
        return known(path, "eks", f"Its API is at {EKS_HOST[1:]}, and it serves no kinds of OpenShift.")
    marked = [node for node in facts.nodes.value if any(key.startswith(EKS_LABEL) for key in labels(node))]
    if marked:
        return known(
            path, "eks", f"{len(marked)} nodes have labels of {EKS_LABEL}, and there are no kinds of OpenShift."
        )
    nodes = f"nodes may not be read: {facts.nodes.why}" if facts.nodes.why else f"no node has a label of {EKS_LABEL}"
    return known(path, "kubernetes", f"It serves no kinds of OpenShift, its API is not at {EKS_HOST[1:]}, and {nodes}.")
