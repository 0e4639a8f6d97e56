"""The security section of the draft: the security context constraints (SCCs) that the user may use."""

from __future__ import annotations

from collections.abc import Iterator

from gpuctl.cluster.discover.adapters import Rdma
from gpuctl.cluster.discover.draft_yaml import UNKNOWN, Line
from gpuctl.cluster.discover.facts import Facts
from gpuctl.cluster.manifests.rights import PRIVILEGED

MEMLOCK = (
    f"{UNKNOWN}: how much memory a pod may lock is set by the nodes' container runtime (LimitMEMLOCK), which the API "
    "does not report; `gpuctl cluster deploy` checks it in a pod. If too low: set both, or raise it."
)


def security(facts: Facts, rdma_setup: Rdma) -> Iterator[Line]:
    if facts.openshift:
        yield Line("security", None, tuple(_constraints(facts)))
        yield Line("security.service_account", None, ("If omitted, deploy creates its own.",), shown="NAME")
    if rdma_setup.resources:
        yield Line("security.ipc_lock", None, (MEMLOCK,), shown="true")
        yield Line("security.rdma_as_root", None, (), shown="true")
    if rdma_setup.resources and facts.openshift:
        may = f"You may {'' if PRIVILEGED in facts.usable else 'not '}use {PRIVILEGED}, which is more than RDMA needs."
        yield Line("security.requires_privileged_scc", None, (may,), shown="true")


def _constraints(facts: Facts) -> Iterator[str]:
    names = ", ".join(facts.usable) or "none known"
    yield f"SecurityContextConstraints that you may use: {names}."
    if facts.constraints_why:
        yield f"Only the built-in ones were checked: {facts.constraints_why}."
    may = "may" if facts.may_make else "may not"
    yield f"You {may} create constraints, which ipc_lock, rdma_as_root and host_network need."
