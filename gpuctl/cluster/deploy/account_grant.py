"""OpenShift: constraints that an admin has granted to the file's service account; deploy then creates none."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gpuctl.cluster.deploy.cluster_snapshot import Maybe
from gpuctl.cluster.deploy.model import is_ours
from gpuctl.cluster.deploy.read_snapshot import SCC, attempt
from gpuctl.cluster.environment import Environment, Object
from gpuctl.cluster.manifests import pods, rights
from gpuctl.core.errors import GpuctlError, Unreachable
from gpuctl.domain.findings import Finding, Verdict
from gpuctl.domain.kube_errors import Forbidden, NotFound
from gpuctl.edges.kube.cluster import Cluster, Kind, Request

REVIEW = Kind("security.openshift.io/v1", "PodSecurityPolicyReview", "podsecuritypolicyreviews", namespaced=True)
USE = Kind(*SCC, "securitycontextconstraints", namespaced=True)  # granted by a Role, so in a namespace
BINDINGS = (f"{rights.RBAC}/v1", "RoleBinding")
OF_OC = "system:openshift:scc:"  # prefix of the roles that `oc adm policy add-scc-to-user` binds
ANY_USER = "RunAsAny"


def find_grant(cluster: Cluster, env: Environment) -> Maybe[str]:
    """Return the name of granted constraints that admit the pods; "" if there are none, or none are needed.

    The server decides (PodSecurityPolicyReview), or where it does not answer that, the account's access rights.
    """
    if not _is_named(env) or _has_our_binding(cluster, env):
        return Maybe("")
    try:
        return Maybe(_admitted_by(cluster, env))
    except (NotFound, Forbidden):
        return _by_rights(cluster, env)
    except Unreachable:
        raise
    except GpuctlError as error:
        return Maybe("", error.wrong)


def with_grant(env: Environment, grant: Maybe[str]) -> Environment:
    """Return the environment with or without constraints of its own: with none if that is unknown."""
    return replace(env, granted=bool(grant.value or grant.why))


def as_deployed(cluster: Cluster, env: Environment) -> Environment:
    """Return the environment without constraints of its own if it is deployed like that."""
    return replace(env, granted=_is_named(env) and not _has_our_binding(cluster, env))


def findings(env: Environment, grant: Maybe[str]) -> list[Finding]:
    """Report granted constraints; an account without any is reported by the preflight's check of constraints."""
    subject = f"ServiceAccount {rights.account_name(env)}"
    if grant.why:
        message = f"it is not known whether an admin granted constraints that admit the pods: {grant.why}"
        hint = "if none are, no pod is created; `gpuctl cluster status` shows the reason"
        return [Finding("constraints", subject, Verdict.UNKNOWN, message, hint=hint)]
    return [Finding("constraints", subject, Verdict.OK, f"{grant.value} admit its pods")] if grant.value else []


def _is_named(env: Environment) -> bool:
    return bool(env.cluster.security.service_account and rights.constraints_name(env))


def _has_our_binding(cluster: Cluster, env: Environment) -> bool:
    """Return True if an earlier deployment granted the constraints: what we granted is ours to keep and remove."""
    live = attempt(lambda: cluster.get(cluster.kind(*BINDINGS), rights.binding_name(env)), None).value
    names = [subject.get("name") for subject in (live or {}).get("subjects") or []]
    return live is not None and is_ours(env, live) and rights.account_name(env) in names


def _admitted_by(cluster: Cluster, env: Environment) -> str:
    """Return the constraints that admit the pod template for the account, by the server's own admission."""
    template = {"metadata": {}, "spec": pods.single(env)["spec"]}
    spec = {"template": template, "serviceAccountNames": [rights.account_name(env)]}
    body = {"apiVersion": REVIEW.api_version, "kind": REVIEW.kind, "spec": spec}
    doing = f"ask which constraints admit the pods of {rights.account_name(env)}"
    answer = cluster.ask(Request(doing, "POST", cluster.path_of(REVIEW), body=body))
    allowed = (answer.get("status") or {}).get("allowedServiceAccounts") or []
    return next((str(by["name"]) for item in allowed if (by := item.get("allowedBy")) and by.get("name")), "")


def _by_rights(cluster: Cluster, env: Environment) -> Maybe[str]:
    """Return the first sufficient constraints that the account may use; without the right to list them, by name."""
    user, groups = _identity(env)
    try:
        known: Maybe[list[Object]] = attempt(lambda: cluster.find(cluster.kind(*SCC), {}), [])
        sufficient = [constraints for constraints in known.value if _suffices(env, constraints)]
        for constraints in sufficient:
            if user in (constraints.get("users") or []) or {*groups} & {*(constraints.get("groups") or [])}:
                return Maybe(str(constraints["metadata"]["name"]))
        names = (
            _names_of_bindings(cluster, user, groups)
            if known.why
            else [str(constraints["metadata"]["name"]) for constraints in sufficient]
        )
        for name in names:
            if cluster.may("use", USE, name, account=(user, groups)):
                return Maybe(name)
    except Forbidden as error:
        return Maybe("", error.wrong)
    # The file names the privileged ones; other sufficient ones have any name.
    return Maybe("", "" if rights.constraints_name(env) == rights.PRIVILEGED else known.why)


def _names_of_bindings(cluster: Cluster, user: str, groups: list[str]) -> Iterator[str]:
    """Yield names of constraints that may be granted: the privileged ones, and those that `oc adm policy` granted."""
    yield rights.PRIVILEGED
    bindings: Maybe[list[Object]] = attempt(lambda: cluster.find(cluster.kind(*BINDINGS), {}), [])
    for binding in bindings.value:
        for subject in binding.get("subjects") or []:
            name = f"system:serviceaccount:{subject.get('namespace')}:{subject.get('name')}"
            if user in (name, subject.get("name")) or subject.get("name") in groups:
                yield str(binding["roleRef"]["name"]).removeprefix(OF_OC)


def _identity(env: Environment) -> tuple[str, list[str]]:
    """Return the user name and groups of the service account (Kubernetes: service account tokens)."""
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{env.namespace}", "system:authenticated"]
    return f"system:serviceaccount:{env.namespace}:{rights.account_name(env)}", groups


def _suffices(env: Environment, constraints: Object) -> bool:
    """Return True if constraints allow what the pods need beyond the restricted ones."""
    if rights.constraints_name(env) == rights.PRIVILEGED:
        return bool(constraints.get("allowPrivilegedContainer"))
    security, allowed = env.cluster.security, {*(constraints.get("allowedCapabilities") or [])}
    return (
        ("*" in allowed or {*rights.capabilities(env)} <= allowed)
        and (not env.cluster.network.rdma.host_network or bool(constraints.get("allowHostNetwork")))
        and (not security.rdma_as_root or (constraints.get("runAsUser") or {}).get("type") == ANY_USER)
    )
