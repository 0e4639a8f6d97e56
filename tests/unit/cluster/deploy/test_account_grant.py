"""Constraints that an admin granted to the account of the file: recognised, and not made again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from gpuctl.cluster.deploy import account_grant, checks
from gpuctl.cluster.deploy.cluster_snapshot import Maybe
from gpuctl.cluster.environment import Environment, Object
from gpuctl.cluster.manifests import everything
from gpuctl.core.errors import GpuctlError
from gpuctl.domain.kube_errors import Forbidden, NotFound
from gpuctl.edges.kube.cluster import Cluster, Kind, Request
from tests.rig.cluster.files import ON_OPENSHIFT, ROCE
from tests.rig.cluster.snapshots import env_of, there

LOCKING = {"ipc_lock": True, "rdma_as_root": True}
PRIVILEGED = {"requires_privileged_scc": True}
Listed = Mapping[str, list[Object] | GpuctlError]
USER = "system:serviceaccount:team:ml"
OWN_KINDS = {"SecurityContextConstraints", "Role", "RoleBinding", "ServiceAccount"}


def env(folder: Path, security: Mapping[str, Any], account: str = "ml") -> Environment:
    named = {"service_account": account} if account else {}
    return env_of(folder, ON_OPENSHIFT, {"network": {"rdma": ROCE}, "security": {**security, **named}}, mode="rdma")


def constraints(name: str, **parts: Any) -> Object:
    return {"metadata": {"name": name}, "allowedCapabilities": None, "runAsUser": {"type": "RunAsAny"}, **parts}


@dataclass
class AnsweringCluster:
    """A cluster that answers a review of the account's pods, lists objects, and says what the account may use."""

    review: Object | GpuctlError = field(default_factory=lambda: NotFound("review", "404"))
    listed: Listed = field(default_factory=dict)
    usable: tuple[str, ...] | GpuctlError = ()
    binding: Object | None = None
    body: Object = field(default_factory=dict)

    def ask(self, request: Request) -> Object:
        assert (request.method, request.path) == ("POST", "/podsecuritypolicyreviews")
        self.body = request.body or {}
        return cast(Object, given(self.review))

    def path_of(self, kind: Kind) -> str:
        return f"/{kind.plural}"

    def kind(self, api_version: str, kind: str) -> Kind:
        return Kind(api_version, kind, f"{kind.lower()}s", namespaced=True)

    def get(self, kind: Kind, name: str) -> Object | None:
        assert (kind.kind, name) == ("RoleBinding", "lab-scc")
        return self.binding

    def find(self, kind: Kind, labels: Mapping[str, str]) -> list[Object]:
        return cast(list[Object], given(self.listed.get(kind.kind, [])))

    def may(self, verb: str, kind: Kind, name: str, account: tuple[str, list[str]]) -> bool:
        assert (verb, kind.plural, account[0]) == ("use", "securitycontextconstraints", USER)
        assert account[1] == ["system:serviceaccounts", "system:serviceaccounts:team", "system:authenticated"]
        return name in given(self.usable)


def given(answer: Any) -> Any:
    if isinstance(answer, GpuctlError):
        raise answer
    return answer


def look(cluster: AnsweringCluster, of: Environment) -> Maybe[str]:
    return account_grant.find_grant(cast(Cluster, cluster), of)


@pytest.mark.parametrize("security", [LOCKING, PRIVILEGED])
def test_the_servers_own_review_of_the_pods_decides(tmp_path: Path, security: Mapping[str, Any]) -> None:
    allowed = {"name": "ml", "allowedBy": {"kind": "SecurityContextConstraints", "name": "rdma"}}
    cluster = AnsweringCluster({"status": {"allowedServiceAccounts": [allowed]}})
    assert look(cluster, env(tmp_path, security)) == Maybe("rdma")
    spec = cluster.body["spec"]
    assert spec["serviceAccountNames"] == ["ml"]
    (container,) = spec["template"]["spec"]["containers"]
    assert container["securityContext"].get("privileged", False) is (security is PRIVILEGED)
    refused = {"name": "ml", "reason": "CantAssignSecurityContextConstraintProvider"}
    for statuses in ([], [refused]):
        assert look(AnsweringCluster({"status": {"allowedServiceAccounts": statuses}}), env(tmp_path, security)) == (
            Maybe("")
        )


def test_an_account_of_our_own_and_pods_without_needs_ask_nothing(tmp_path: Path) -> None:
    cluster = AnsweringCluster(AssertionError("asked"))  # type: ignore[arg-type]
    assert look(cluster, env(tmp_path, LOCKING, account="")) == Maybe("")
    assert look(cluster, env(tmp_path, {})) == Maybe("")
    assert cluster.body == {}


def test_without_a_review_the_accounts_rights_to_sufficient_constraints_decide(tmp_path: Path) -> None:
    less = constraints("less", allowedCapabilities=["IPC_LOCK"])
    bound = constraints("bound", allowedCapabilities=["*"], runAsUser={"type": "MustRunAsRange"})
    enough = constraints("enough", allowedCapabilities=["IPC_LOCK", "SETGID", "SETUID", "SYS_CHROOT"])
    listed = {"SecurityContextConstraints": [less, bound, enough]}
    of = env(tmp_path, LOCKING)
    assert look(AnsweringCluster(listed=listed, usable=("less", "bound")), of) == Maybe("")
    assert look(AnsweringCluster(listed=listed, usable=("less", "enough")), of) == Maybe("enough")
    for subject in ({"users": [USER]}, {"groups": ["system:serviceaccounts:team"]}):
        theirs = {"SecurityContextConstraints": [{**enough, **subject}]}
        assert look(AnsweringCluster(listed=theirs), of) == Maybe("enough")
    only_privileged = {"SecurityContextConstraints": [enough, constraints("all", allowPrivilegedContainer=True)]}
    assert look(AnsweringCluster(listed=only_privileged, usable=("enough",)), env(tmp_path, PRIVILEGED)) == Maybe("")
    assert look(AnsweringCluster(listed=only_privileged, usable=("all",)), env(tmp_path, PRIVILEGED)) == Maybe("all")


def test_who_may_not_list_constraints_finds_those_that_oc_granted_or_does_not_know(tmp_path: Path) -> None:
    hidden = Forbidden("list", "you may not list securitycontextconstraints")
    role = {"kind": "ClusterRole", "name": "system:openshift:scc:rdma"}
    subjects = [{"kind": "ServiceAccount", "name": "ml", "namespace": "team"}]
    listed: Listed = {"SecurityContextConstraints": hidden, "RoleBinding": [{"roleRef": role, "subjects": subjects}]}
    of = env(tmp_path, LOCKING)
    assert look(AnsweringCluster(listed=listed, usable=("rdma",)), of) == Maybe("rdma")
    assert look(AnsweringCluster(listed=listed), of) == Maybe("", hidden.wrong)
    named = env(tmp_path, PRIVILEGED)
    assert look(AnsweringCluster(listed=listed), named) == Maybe("")
    assert look(AnsweringCluster(listed=listed, usable=("privileged",)), named) == Maybe("privileged")
    unasked = AnsweringCluster(Forbidden("review", "no"), listed, Forbidden("ask", "you may not ask"))
    assert look(unasked, of) == Maybe("", "you may not ask")


def test_what_an_earlier_deployment_granted_stays_ours(tmp_path: Path) -> None:
    of = env(tmp_path, LOCKING)
    binding = {"metadata": {"labels": of.labels}, "subjects": [{"name": "ml"}]}
    admitted = {"status": {"allowedServiceAccounts": [{"allowedBy": {"name": "gpuctl-team-lab"}}]}}
    assert look(AnsweringCluster(admitted, binding=binding), of) == Maybe("")
    for others in ({**binding, "metadata": {}}, {**binding, "subjects": [{"name": "lab"}]}, None):
        cluster = AnsweringCluster(admitted, binding=others)
        assert look(cluster, of) == Maybe("gpuctl-team-lab")
        assert account_grant.as_deployed(cast(Cluster, cluster), of).granted
    assert not account_grant.as_deployed(cast(Cluster, AnsweringCluster(binding=binding)), of).granted


@pytest.mark.parametrize("security", [LOCKING, PRIVILEGED])
def test_a_granted_account_gets_nothing_of_its_own_and_the_same_pods(
    tmp_path: Path, security: Mapping[str, Any]
) -> None:
    before = env(tmp_path, security)
    of = account_grant.with_grant(before, Maybe("rdma"))
    kinds = {each["kind"] for each in everything(of)}
    assert not kinds & OWN_KINDS
    assert [each for each in everything(before) if each["kind"] not in OWN_KINDS] == everything(of)
    found = [each for each in checks.all_of(of, there(account=Maybe({})), []) if each.check == "constraints"]
    assert found == []
    (finding,) = account_grant.findings(of, Maybe("rdma"))
    assert (finding.verdict, finding.message) == ("OK", "rdma admit its pods")


def test_a_grant_that_cannot_be_known_is_unknown_and_one_that_is_missing_names_the_command(tmp_path: Path) -> None:
    of = account_grant.with_grant(env(tmp_path, LOCKING), Maybe("", "you may not ask"))
    assert of.granted
    (finding,) = account_grant.findings(of, Maybe("", "you may not ask"))
    assert (finding.verdict, "you may not ask" in finding.message) == ("UNKNOWN", True)
    for security, words in ((PRIVILEGED, "privileged -z ml -n team`"), (LOCKING, "CONSTRAINTS -z ml -n team` with")):
        missing = account_grant.with_grant(env(tmp_path, security), Maybe(""))
        # An ordinary user may neither use nor read constraints: the first is what matters.
        exist = there(account=Maybe({}), constraints=Maybe(None, "you may not read it"), may_use=Maybe(False))
        (found,) = [each for each in checks.all_of(missing, exist, []) if each.check == "constraints"]
        assert (found.verdict, f"oc adm policy add-scc-to-user {words}" in found.hint) == ("FAIL", True), found.hint
