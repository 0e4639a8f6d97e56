"""The draft's section on what pods may do: which of OpenShift's constraints we may use."""

from __future__ import annotations

from collections.abc import Iterator

from gpuctl.cluster.discover.adapters import Rdma
from gpuctl.cluster.discover.draft_yaml import UNKNOWN, Line
from gpuctl.cluster.discover.facts import Facts
from gpuctl.cluster.manifests.rights import PRIVILEGED

MEMLOCK = (
    f"{UNKNOWN}: how much memory a pod may lock is for the nodes' container runtime to say (LimitMEMLOCK), and the API "
    "does not tell it; `gpuctl cluster deploy` asks in a pod. Where it is too little: both of these, or raise it there."
)


def security(facts: Facts, rdma_setup: Rdma) -> Iterator[Line]:
    if facts.openshift:
        yield Line("security", None, tuple(_constraints(facts)))
        yield Line("security.service_account", None, ("Left out, deploy makes one of its own.",), shown="NAME")
    if rdma_setup.resources:
        yield Line("security.ipc_lock", None, (MEMLOCK,), shown="true")
        yield Line("security.rdma_as_root", None, (), shown="true")
    if rdma_setup.resources and facts.openshift:
        may = f"You may {'' if PRIVILEGED in facts.usable else 'not '}use {PRIVILEGED}, which is more than RDMA needs."
        yield Line("security.requires_privileged_scc", None, (may,), shown="true")


def _constraints(facts: Facts) -> Iterator[str]:
    names = ", ".join(facts.usable) or "none that we know of"
    yield f"SecurityContextConstraints that you may use: {names}."
    if facts.constraints_why:
        yield f"Only those of every OpenShift were asked about: {facts.constraints_why}."
    may = "may" if facts.may_make else "may not"
    yield f"You {may} make constraints of your own, which ipc_lock, rdma_as_root and host_network take."
