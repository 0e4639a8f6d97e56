"""The IAM policy of each command suffices for it, and holds nothing that no run asks for.

The account refuses every other action (eks_policies.py). What only a failure or an older state asks for is named here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from gpuctl.cli.app import app
from gpuctl.eks import wait
from gpuctl.workflows import eks_balancers, eks_plugins
from tests.rig.aws_endpoint import LOGIN, client
from tests.rig.eks_endpoint import ACCOUNT, backend, eks_endpoint
from tests.rig.eks_policies import FOLDER, EnforcingAccount, actions, statements
from tests.rig.iam_statements import EVERYTHING, allowed
from tests.rig.source_files import ROOT

FILE = f"""
name: lab
region: us-east-1
version: "1.36"
vpc: 10.20.0.0/16
admins: ["arn:aws:iam::{ACCOUNT}:role/Admin", "arn:aws:iam::{ACCOUNT}:user/alice"]
addons: [aws-ebs-csi-driver]
node_groups:
  - {{name: gpu, instance_type: p4d.24xlarge, min: 0, max: 1, desired: 1, placement: cluster}}
ttl: 8h
"""
OURS = {"gpuctl:cluster": "lab", "gpuctl:region": "us-east-1"}
BALANCERS = {"elasticloadbalancing:DescribeLoadBalancerAttributes", "elasticloadbalancing:DescribeTags"}
# Of what this run has not: parts of a cluster that exists while it is planned; a failed group or addon that is removed;
# a template that is changed, a route that is replaced; an account without EKS; load balancers, volumes, Fargate.
NOT_HERE = {
    "plan": {
        *("eks:DescribeAccessEntry", "eks:DescribeAddon", "eks:DescribeNodegroup", "eks:ListAccessEntries"),
        *("eks:ListAddons", "eks:ListAssociatedAccessPolicies", "eks:ListFargateProfiles", "eks:ListNodegroups"),
    },
    "cost": BALANCERS,
    "create": {
        *("eks:DeleteNodegroup", "eks:DeleteAddon", "ec2:ReplaceRoute", "iam:CreateServiceLinkedRole"),
        *("ec2:CreateLaunchTemplateVersion", "ec2:ModifyLaunchTemplate"),
    },
    "destroy": {
        *("eks:DeleteFargateProfile", "elasticloadbalancing:DeleteLoadBalancer", "ec2:DeleteVolume", "ec2:CreateTags"),
        *BALANCERS,
    },
}
GIVEN_SUBNETS = {"ec2:GetSubnetCidrReservations", "ec2:DescribeNetworkAcls", "ec2:DescribeVpcEndpoints"}
GIVEN_SUBNETS |= {"ec2:DescribeDhcpOptions", "ec2:DescribeVpcAttribute"}
FARGATE = {"eks:DescribeFargateProfile"}  # none exists
COMMANDS = ("plan", "create", "status", "cost", "destroy")


def leave_behind(url: str) -> None:
    """What a cluster leaves beside its own parts: log groups, a snapshot, a target group."""
    for name in ("/aws/eks/lab/cluster", "/aws/containerinsights/lab/performance"):
        backend("logs").create_log_group(name, {})
    ec2, owned = backend("ec2"), {"kubernetes.io/cluster/lab": "owned"}
    volume = ec2.create_volume(size="1", zone_name="us-east-1a")
    ec2.create_tags([ec2.create_snapshot(volume.id, "").id], owned)
    ec2.delete_volume(volume.id)
    vpc = ec2.create_vpc("10.21.0.0/16")
    tags = [{"Key": "elbv2.k8s.aws/cluster", "Value": "lab"}]
    parameters = {"Name": "k8s-web", "Protocol": "TCP", "Port": 80, "VpcId": vpc.id, "Tags": tags}
    client(url, "elbv2").create_target_group(**parameters)


@pytest.fixture(scope="module")
def account(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EnforcingAccount]:
    made = EnforcingAccount()
    with eks_endpoint(made) as (url, _), pytest.MonkeyPatch.context() as patch:
        for name, value in {**LOGIN, "AWS_ENDPOINT_URL": url, "AWS_MAX_ATTEMPTS": "1"}.items():
            patch.setenv(name, value)
        patch.setenv("GPUCTL_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))  # of kubeconfigs
        patch.setattr(wait, "EVERY_S", 0.01)
        patch.setattr(eks_balancers, "ANSWER_S", 0.2)  # no Kubernetes answers at moto's address
        patch.setattr(eks_plugins, "PATIENCE_S", 0.2)
        made.url = url
        backend("iam").create_role("Admin", "{}", "/", None, "", [], "3600")
        backend("iam").create_user("us-east-1", "alice")
        yield made


def test_each_command_runs_with_its_policy_and_asks_for_all_of_it(account: EnforcingAccount, tmp_path: Path) -> None:
    path = tmp_path / "lab.yaml"
    path.write_text(FILE)
    words = {
        "plan": ("plan", path),
        "create": ("create", path, "--yes"),
        "status": ("status", "lab", "--region", "us-east-1", "--no-pods"),
        "cost": ("cost", "--region", "us-east-1"),
        "destroy": ("destroy", "lab", "--region", "us-east-1", "--volumes", "keep", "--yes"),
    }
    words["destroy"] += ("--logs", "delete", "--snapshots", "delete", "--foreign", "lab")
    unused: dict[str, set[str]] = {}
    for name in COMMANDS:
        if name == "destroy":
            account.allow = [EVERYTHING]
            leave_behind(account.url)
        if name == "cost":
            tags = [{"Key": key, "Value": value} for key, value in OURS.items()]
            made = backend("ecr").create_repository("gpu-pod", None, {}, {}, "MUTABLE", tags)
            listed = {"ResourceTagMappingList": [{"ResourceARN": made.arn, "Tags": tags}]}
            account.answers["GetResources"] = (200, json.dumps(listed))  # moto does not list those of ECR
        account.allow, account.used = statements(name), set()
        result = CliRunner().invoke(app, ["eks", *map(str, words[name])])
        assert account.refused == set(), name
        assert result.exception is None or isinstance(result.exception, SystemExit), result.output
        unused[name] = actions(name) - account.used - NOT_HERE.get(name, set()) - FARGATE
    assert unused == {
        **{key: set() for key in COMMANDS},
        **dict.fromkeys(("plan", "create"), GIVEN_SUBNETS),
    }
    assert not backend("eks").clusters  # destroyed
    assert not backend("logs").groups
    assert not backend("elbv2").target_groups


def test_an_action_that_no_policy_holds_is_refused(account: EnforcingAccount, tmp_path: Path) -> None:
    path = tmp_path / "lab.yaml"
    path.write_text(FILE)
    account.allow = [{**one, "Action": set(one["Action"]) - {"ec2:DescribeVpcs"}} for one in statements("plan")]
    result = CliRunner().invoke(app, ["eks", "plan", str(path)])
    assert account.refused == {"ec2:DescribeVpcs"}
    assert "no permission for ec2:DescribeVpcs" in result.stdout


def test_policies_do_not_make_an_administrator_and_remove_only_what_has_the_tag(account: EnforcingAccount) -> None:
    role = "gpuctl-x-us-east-1-node"
    for policy in ("AdministratorAccess", "AmazonEKSClusterPolicy"):
        backend("iam").create_role(f"{role}-{policy}"[:64], "{}", "/", None, "", [], "3600")
    iam, ec2 = client(account.url, "iam"), client(account.url)
    account.allow = statements("create")

    def attach(policy: str) -> None:
        parameters = {"RoleName": f"{role}-{policy}"[:64], "PolicyArn": f"arn:aws:iam::aws:policy/{policy}"}
        iam.attach_role_policy(**parameters)

    attach("AmazonEKSClusterPolicy")
    with pytest.raises(Exception, match="iam:AttachRolePolicy"):
        attach("AdministratorAccess")
    arn = f"arn:aws:iam::{ACCOUNT}:role/{role}"
    for service, verdict in (("eks.amazonaws.com", True), ("ec2.amazonaws.com", False)):
        assert allowed(account.allow, "iam:PassRole", arn, {"iam:PassedToService": service}) is verdict
    for name in ("destroy", "reap"):
        account.allow = [*statements(name), {"Action": ["ec2:CreateVpc", "ec2:CreateTags"], "Resource": "*"}]
        tags = [{"ResourceType": "vpc", "Tags": [{"Key": "gpuctl:cluster", "Value": "lab"}]}]
        ours = ec2.create_vpc(CidrBlock="10.0.0.0/16", TagSpecifications=tags)["Vpc"]["VpcId"]
        ec2.delete_vpc(VpcId=ours)
        theirs = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
        with pytest.raises(Exception, match="ec2:DeleteVpc"):
            ec2.delete_vpc(VpcId=theirs)
    account.refused.clear()


def test_reap_may_what_destroy_may_and_list_roles() -> None:
    assert actions("reap") == actions("destroy") | {"iam:ListRoles", "iam:ListRoleTags"}
    assert actions("create") > actions("plan")
    assert actions("pod") == {"eks:DescribeCluster"}


def test_the_page_names_every_action_and_policies_change_only_roles_of_gpuctl() -> None:
    permissions = (ROOT / "docs/eks.md").read_text().partition("## Permissions")[2]
    for path in FOLDER.glob("*.json"):
        for action in actions(path.stem):
            assert re.search(rf"\b{action.partition(':')[2]}\b", permissions), action
        for one in statements(path.stem):
            changes = [each for each in one["Action"] if re.match(r"iam:(Create|Delete|Attach|Detach|Pass|Tag)", each)]
            if changes and changes != ["iam:CreateServiceLinkedRole"]:
                assert all("role/gpuctl" in each for each in one["Resource"]), one["Sid"]
