"""Read all objects of a cluster from AWS, by their tags and names: nothing is remembered between two runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from gpuctl.core.errors import GpuctlError
from gpuctl.edges.aws import Aws, Request, code_of, converted
from gpuctl.eks.objects import CLUSTER, Kind, Object, State, from_answer, role_name

ABSENT = ("NotFound", "NoSuchEntity", "Malformed.NotFound", "InvalidPlacementGroup.Unknown")
DENIED = ("AccessDenied", "UnauthorizedOperation")
# Kind -> operation of EC2, the list in its answer, and its parameter of filters.
BY_TAG: Mapping[Kind, tuple[str, str, str]] = {
    Kind.VPC: ("DescribeVpcs", "Vpcs", "Filters"),
    Kind.GATEWAY: ("DescribeInternetGateways", "InternetGateways", "Filters"),
    Kind.SUBNET: ("DescribeSubnets", "Subnets", "Filters"),
    Kind.ROUTES: ("DescribeRouteTables", "RouteTables", "Filters"),
    Kind.ADDRESS: ("DescribeAddresses", "Addresses", "Filters"),
    Kind.NAT: ("DescribeNatGateways", "NatGateways", "Filter"),
    Kind.SECURITY_GROUP: ("DescribeSecurityGroups", "SecurityGroups", "Filters"),
    Kind.TEMPLATE: ("DescribeLaunchTemplates", "LaunchTemplates", "Filters"),
    Kind.PLACEMENT: ("DescribePlacementGroups", "PlacementGroups", "Filters"),
}
ROLES = ("cluster", "node")
# Kind -> operation that lists, the list in its answer, operation that describes, its parameter, member of its answer.
IN_CLUSTER: Mapping[Kind, tuple[str, str, str, str, str]] = {
    Kind.GROUP: ("ListNodegroups", "nodegroups", "DescribeNodegroup", "nodegroupName", "nodegroup"),
    Kind.FARGATE: (
        *("ListFargateProfiles", "fargateProfileNames", "DescribeFargateProfile"),
        *("fargateProfileName", "fargateProfile"),
    ),
    Kind.ADDON: ("ListAddons", "addons", "DescribeAddon", "addonName", "addon"),
    Kind.ENTRY: ("ListAccessEntries", "accessEntries", "DescribeAccessEntry", "principalArn", "accessEntry"),
}
GONE_STATES = frozenset({"deleted", "DELETED"})


def is_absent(error: BaseException) -> bool:
    """True if AWS answered that the object does not exist."""
    return any(part in code_of(error) for part in ABSENT)


def is_denied(error: BaseException) -> bool:
    """True if the login may not do it: the next run is refused, too."""
    return any(part in code_of(error) for part in DENIED)


def described(aws: Aws, requests: Mapping[Any, Request]) -> dict[Any, list[Any]]:
    """Answers to requests in parallel, an empty list for what does not exist; raises the first other error."""
    answers: dict[Any, list[Any]] = {}
    for key, answer in (aws.read_all(requests, lambda item: item) if requests else {}).items():
        if isinstance(answer, GpuctlError):
            if not is_absent(answer):
                raise answer
            answers[key] = []
        else:
            answers[key] = answer
    return answers


def described_in_parts(aws: Aws, request: Request, parameter: str, names: Sequence[str], size: int) -> list[Any]:
    """Answers to a request that takes `size` names at once. AWS refuses a part as a whole if one of its names is gone:
    each name of such a part is asked for by itself."""

    def of(several: Sequence[str]) -> Request:
        return replace(request, parameters={**request.parameters, parameter: list(several)})

    parts = [names[start : start + size] for start in range(0, len(names), size)]
    answers = described(aws, {part[0]: of(part) for part in parts})
    again = [name for part in parts if len(part) > 1 and not answers[part[0]] for name in part]
    answers |= described(aws, {name: of([name]) for name in again})
    return [row for rows in answers.values() for row in rows]


def read(aws: Aws, cluster: str) -> State:
    """The state of a cluster in the region of `aws`: three rounds of parallel requests at most."""
    first = {**_tagged(cluster), **_roles(aws, cluster), Kind.CLUSTER: _cluster(cluster)}
    answers = described(aws, first)
    state = State(cluster, aws.region)
    for kind in BY_TAG:
        state.objects += [one for one in _objects(kind, answers[kind], state) if one.tags.get(CLUSTER) == cluster]
    for part in ROLES:
        state.objects += _role(part, answers[f"role {part}"], answers[f"policies of {part}"], state)
    state.objects += _objects(Kind.CLUSTER, [one["cluster"] for one in answers[Kind.CLUSTER]], state)
    if state.of(Kind.CLUSTER):
        state.objects += in_cluster(aws, state)
    return state


def _tagged(cluster: str) -> dict[Any, Request]:
    return {
        kind: Request(f"list {kind}s", "ec2", operation, items, {name: [filter_tag(cluster)]})
        for kind, (operation, items, name) in BY_TAG.items()
    }


def filter_tag(cluster: str) -> dict[str, Any]:
    return {"Name": f"tag:{CLUSTER}", "Values": [cluster]}


def _cluster(cluster: str) -> Request:
    return Request(f"read the cluster {cluster}", "eks", "DescribeCluster", "", {"name": cluster})


def _roles(aws: Aws, cluster: str) -> dict[Any, Request]:
    requests: dict[Any, Request] = {}
    for part in ROLES:
        name = {"RoleName": role_name(cluster, aws.region, part)}
        requests[f"role {part}"] = Request(f"read the {part} role", "iam", "GetRole", "", name)
        listing = ("iam", "ListAttachedRolePolicies", "AttachedPolicies", name)
        requests[f"policies of {part}"] = Request(f"list the policies of the {part} role", *listing)
    return requests


def _role(part: str, answers: Sequence[Any], policies: Sequence[Any], state: State) -> list[Object]:
    """A role of this name is the part's, even if it lacks our tags: then it is not `ours`."""
    found = []
    for answer in answers:
        data = {**answer["Role"], "policies": [one["PolicyArn"] for one in policies]}
        one = _objects(Kind.ROLE, [data], state)[0]
        found.append(Object(one.kind, one.name, part, one.state, one.ours, one.tags, one.data))
    return found


def _objects(kind: Kind, answers: Iterable[Any], state: State) -> list[Object]:
    """Objects of answers. A gateway that was removed stays listed for an hour; an object of another region is none."""
    result = converted(
        list(answers),
        lambda rows: [from_answer(kind, one, state.cluster, state.region) for one in rows],
        f"read AWS's list of {kind}s",
    )
    if isinstance(result, GpuctlError):
        raise result
    return [one for one in result if one.state not in GONE_STATES]


def in_cluster(aws: Aws, state: State, kinds: Iterable[Kind] = tuple(IN_CLUSTER)) -> list[Object]:
    """Objects inside the cluster; access entries with their policies in `data`."""
    of_cluster = {"clusterName": state.cluster}
    listed = described(
        aws,
        {kind: Request(f"list {kind}s", "eks", *IN_CLUSTER[kind][:2], dict(of_cluster)) for kind in kinds},
    )
    requests: dict[Any, Request] = {}
    for kind, names in listed.items():
        _, _, operation, parameter, _ = IN_CLUSTER[kind]
        for name in names:
            parameters = {**of_cluster, parameter: name}
            requests[kind, name] = Request(f"read the {kind} {name}", "eks", operation, "", parameters)
            if kind is Kind.ENTRY:
                request = ("eks", "ListAssociatedAccessPolicies", "associatedAccessPolicies", parameters)
                requests["policies", name] = Request(f"list the policies of {name}", *request)
    answers = described(aws, requests)
    objects = []
    for kind in listed:
        member = IN_CLUSTER[kind][4]
        for name in listed[kind]:
            policies = [str(one["policyArn"]) for one in answers.get(("policies", name), ())]
            rows = [{**one[member], "policies": policies} for one in answers[kind, name]]
            objects += _objects(kind, rows, state)
    return objects
