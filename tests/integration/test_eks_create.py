"""`gpuctl eks create` and `destroy` against moto with additions (tests/rig/eks_endpoint.py), killed at every step."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gpuctl.cli.app import app
from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.domain.findings import Finding
from gpuctl.edges.aws import Aws, Request
from gpuctl.eks import cluster_file, create, prediction, wait
from gpuctl.eks.maker import Design
from gpuctl.eks.node_template import Nic, NodeNetwork
from gpuctl.eks.removal import Choice
from gpuctl.eks.wait import Waiter
from gpuctl.workflows import eks_balancers, eks_destroy, eks_plugins
from tests.rig.aws_endpoint import ERROR, LOGIN, client
from tests.rig.eks_answers import planning_answers
from tests.rig.eks_endpoint import ACCOUNT, Additions, backend, eks_endpoint
from tests.rig.source_files import ROOT

FILE = f"""
name: lab
region: us-east-1
version: "1.36"
vpc: 10.20.0.0/16
admins: ["arn:aws:iam::{ACCOUNT}:role/Admin"]
cni: [WARM_IP_TARGET=2]
node_groups:
  - {{name: gpu, instance_type: p4d.24xlarge, min: 0, max: 2, desired: 1, placement: cluster,
     taints: ["nvidia.com/gpu:NoSchedule"]}}
ttl: 8h
tags: {{team: ml-infra}}
"""
CLUSTER = cluster_file.check(FILE, "test")
NICS = NodeNetwork([Nic(0, 0, "interface"), Nic(0, 1, "efa-only"), Nic(1, 0, "efa-only")], 100)
DESIGN = Design(CLUSTER, {"gpu": NICS}, {"gpu": frozenset({"use1-az1", "use1-az6"})})


REGION = ("--region", "us-east-1")


class Killed(BaseException):
    """The process ends."""


class KilledAws(Aws):
    """Ends the process after the first change that was not carried out before: its answer is lost."""

    done: set[str]
    actions: set[str]

    def read(self, request: Request, convert: Any) -> list[Any]:
        self.actions.add(request.operation)
        return super().read(request, convert)

    def act(self, request: Request) -> dict[str, Any]:
        self.actions.add(request.operation)
        answer = super().act(request)
        key = json.dumps([request.operation, request.parameters], sort_keys=True, default=str)
        if key not in self.done:
            self.done.add(key)
            raise Killed
        return answer


@dataclass(frozen=True)
class Cloud:
    url: str
    additions: Additions


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    with eks_endpoint() as (url, additions), pytest.MonkeyPatch.context() as patch:
        for name, value in {**LOGIN, "AWS_ENDPOINT_URL": url, "AWS_MAX_ATTEMPTS": "1"}.items():
            patch.setenv(name, value)
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))  # of kubeconfigs
        patch.setattr(wait, "EVERY_S", 0.01)
        patch.setattr(eks_balancers, "ANSWER_S", 0.2)
        patch.setattr(eks_plugins, "PATIENCE_S", 0.2)  # no Kubernetes answers at moto's address
        backend("iam").create_role("Admin", "{}", "/", None, "", [], "3600")
        yield Cloud(url, additions)


def waiter(lines: list[str] | None = None) -> Waiter:
    clock = iter(range(0, 10**9, 10))
    return Waiter((lines if lines is not None else []).append, lambda _: None, lambda: float(next(clock)))


def objects(additions: Additions) -> Counter[str]:
    """What exists in the account, read without gpuctl; not what every account and VPC has."""
    ec2, eks, iam = backend("ec2"), backend("eks"), backend("iam")
    default = {one.id for one in ec2.vpcs.values() if one.is_default == "true"}
    clusters = list(eks.clusters.values())
    counted = {
        "vpc": [one for one in ec2.vpcs.values() if one.id not in default],
        "subnet": [one for zone in ec2.subnets.values() for one in zone.values() if one.vpc_id not in default],
        "gateway": list(ec2.internet_gateways.values()),
        "routes": [one for one in ec2.route_tables.values() if not one.main_association_id],
        "address": list(ec2.addresses),
        "nat": [one for one in ec2.nat_gateways.values() if one.state != "deleted"],
        "security group": [one for vpc in ec2.groups.values() for one in vpc.values() if one.name != "default"],
        "template": list(ec2.launch_templates.values()),
        "interface": [one for one in ec2.enis.values() if "NAT" not in (one.description or "")],
        "role": [one for one in iam.roles.values() if one.name.startswith("gpuctl")],
        "cluster": clusters,
        "node group": [group for one in clusters for group in one.nodegroups],
        "addon": [one for addons in additions.addons.values() for one in addons],
        "entry": [one for entries in additions.entries.values() for one in entries],
        "placement": list(additions.placement),
        "target group": list(backend("elbv2").target_groups),
        "snapshot": list(ec2.snapshots),
        "log group": list(backend("logs").groups),
    }
    return Counter({name: len(several) for name, several in counted.items() if several})


def remove(aws: Aws, lines: list[str] | None = None) -> list[Finding]:
    state = eks_destroy.known(aws, "lab")
    around = eks_destroy.around(aws, state)
    return eks_destroy.run(aws, state, around, Choice(), waiter(lines))


def removed(aws: Aws) -> None:
    """Remove it; a run that was killed after its last step has left nothing to be named."""
    try:
        findings = remove(aws)
    except InvalidInput:
        return
    assert [one.verdict for one in findings] == ["OK"], findings


def until_done(step: Any) -> int:
    """Repeat a step that is killed until it ends by itself; how often it was killed."""
    for killed in range(200):
        try:
            step()
        except Killed:
            continue
        return killed
    raise AssertionError("it never ends")


@pytest.fixture
def lab(cloud: Cloud) -> Cloud:
    """The cloud with the cluster lab in it."""
    if "lab" not in backend("eks").clusters:
        create.create(Aws("us-east-1"), DESIGN, waiter())
    return cloud


ONE = ("vpc", "gateway", "address", "nat", "security group", "template", "cluster", "node group", "entry", "placement")
WHOLE = {**dict.fromkeys(ONE, 1), "subnet": 6, "routes": 2, "role": 2, "addon": 3}


def test_killed_after_every_step_and_resumed_then_removed_in_the_same_way(cloud: Cloud) -> None:
    before = objects(cloud.additions)
    aws = KilledAws("us-east-1")
    aws.done, aws.actions = set(), set()
    killed = until_done(lambda: create.create(aws, DESIGN, waiter()))
    assert killed > 35
    assert objects(cloud.additions) - before == WHOLE

    vpc = next(one.id for one in backend("ec2").vpcs.values() if one.is_default != "true")
    tags = [{"Key": "elbv2.k8s.aws/cluster", "Value": "lab"}]
    group = {"Name": "k8s-web", "Protocol": "TCP", "Port": 80, "VpcId": vpc}
    client(cloud.url, "elbv2").create_target_group(**group, Tags=tags)  # which a controller left
    aws.done = set()
    killed = until_done(lambda: removed(aws))
    assert killed > 20
    assert objects(cloud.additions) == before
    permissions = (ROOT / "docs/eks.md").read_text().partition("## Permissions")[2]
    assert {one for one in aws.actions if not re.search(rf"\b{one}\b", permissions)} == set()
    assert len(aws.actions) > 60


def test_lost_answers_make_nothing_twice_and_a_group_without_capacity_is_made_again(cloud: Cloud) -> None:
    message = "Could not launch On-Demand Instances. InsufficientInstanceCapacity - We currently do not have"
    cloud.additions.failing["gpu"] = {"code": "AsgInstanceLaunchFailures", "message": message, "resourceIds": ["asg-1"]}
    cloud.additions.lost |= {"CreateRole", "CreateVpc", "AllocateAddress", "/clusters", "/clusters/lab/node-groups"}
    before, lines = objects(cloud.additions), list[str]()
    aws = Aws("us-east-1")
    findings = {one.check: one for one in create.create(aws, DESIGN, waiter(lines))}
    assert findings["node-group"].verdict == "FAIL"
    assert "AWS has no such instances now" in findings["node-group"].hint
    assert objects(cloud.additions) - before == WHOLE  # although five answers were lost
    assert not cloud.additions.lost
    assert any(line.startswith("waiting for addons (usually 1 to 3 min): vpc-cni CREATING") for line in lines)
    assert "make the VPC vpc: no answer; looking whether it was done" in lines

    cloud.additions.failing.clear()
    backend("eks").clusters["lab"].nodegroups["gpu"].status = "CREATE_FAILED"
    again = create.create(aws, DESIGN, waiter(lines))
    assert {one.check: str(one.verdict) for one in again} == {
        "addon": "OK",
        "node-group": "OK",
    }
    assert any("removing it, to make it again" in line for line in lines)
    assert objects(cloud.additions)["node group"] == 1


def test_status_names_what_runs_what_does_not_and_what_it_costs(lab: Cloud) -> None:
    lab.additions.answers["/cluster-versions"] = planning_answers(())["/cluster-versions"]
    subnet = backend("eks").clusters["lab"].nodegroups["gpu"].subnets[0]
    wanted = {"ImageId": "ami-12c6146b", "MinCount": 1, "MaxCount": 1, "InstanceType": "m5.large", "SubnetId": subnet}
    bastion = client(lab.url).run_instances(**wanted)["Instances"][0]
    document = json.loads(run(lab, "status", "lab", "--no-pods", "--output", "json").stdout)
    client(lab.url).terminate_instances(InstanceIds=[bastion["InstanceId"]])
    del backend("ec2").enis[bastion["NetworkInterfaces"][0]["NetworkInterfaceId"]]  # moto keeps it
    assert not any("m5.large" in one["part"] for one in document["costs"])  # of somebody else in the VPC
    judged = {(one["check"], one["subject"]): one for one in document["findings"]}
    assert judged["cluster", "lab"]["verdict"] == "OK"
    assert judged["nodes", "gpu"]["message"] == "0 of 1 desired instances run"
    assert judged["ttl", "lab"]["numbers"]["hours"] == pytest.approx(8, abs=0.2)
    assert document["costs"][0]["usd_hour"] == 0.10
    assert len(document["objects"]) == sum(WHOLE.values())


def test_cost_is_that_of_all_clusters_and_names_what_has_no_price(lab: Cloud) -> None:
    lab.additions.answers["/cluster-versions"] = planning_answers(())["/cluster-versions"]
    result = run(lab, "cost", "--output", "json")
    document = json.loads(result.stdout)
    one = next(each for each in document["clusters"] if each["cluster"] == "lab")
    hours = {each["part"]: each["usd_hour"] for each in one["parts"]}
    assert result.exit_code == 0
    assert hours == {"control plane": 0.10, "1 NAT gateway": None, "1 Elastic IP": None}
    assert (one["usd_hour"], one["usd_until_end"], one["is_lower_bound"]) == (0.1, pytest.approx(0.8, abs=0.02), True)
    assert "UNKNOWN: 1 Elastic IP, 1 NAT gateway" in document["findings"][0]["message"]
    assert run(lab, "cost", "--cluster", "lab", "--strict").exit_code == 1
    for words, wrong in ((("--cluster", "la"), "made no cluster la"), (("--owner", "bob"), "has the tag owner=bob")):
        error = run(lab, "cost", *words).exception
        assert isinstance(error, InvalidInput)
        assert wrong in error.wrong


def expire(cluster: str) -> None:
    """The time to live is over."""
    role = next(one for one in backend("iam").roles.values() if one.name == f"gpuctl-{cluster}-us-east-1-cluster")
    backend("iam").tag_role(role.name, [{"Key": "gpuctl:expires", "Value": "2026-01-01T00:00:00Z"}])


def test_deletion_protection_and_volumes_stop_a_removal_before_it_begins(lab: Cloud) -> None:
    before = objects(lab.additions)
    lab.additions.protected.add("lab")
    volume = backend("ec2").create_volume(size="100", zone_name="us-east-1a")
    backend("ec2").create_tags([volume.id], {"kubernetes.io/cluster/lab": "owned"})
    result = run(lab, "destroy", "lab", "--yes")
    assert result.exit_code == 1
    assert "deletion protection is on" in result.stdout
    assert "1 volumes (100 GiB)" in result.stdout
    assert objects(lab.additions) == before
    lab.additions.protected.clear()


def test_what_others_made_stays_and_is_named_until_the_name_is_typed_again(lab: Cloud) -> None:
    """A node group of somebody else in the cluster, an interface of Lambda in its VPC, and objects elsewhere."""
    ec2, eks = backend("ec2"), backend("eks")
    ours = eks.clusters["lab"].nodegroups["gpu"]
    eks.create_nodegroup("lab", ours.node_role, "theirs", ours.subnets)
    subnet = ec2.get_subnet(ours.subnets[0])
    interface = ec2.create_network_interface(subnet, [], description="AWS Lambda VPC ENI-train-1")
    other = ec2.create_vpc("10.99.0.0/16")

    listed = run(lab, "destroy", "lab", "--volumes", "keep")
    assert listed.exit_code == 0, listed.output
    assert "nothing was removed" in listed.stdout
    refused = run(lab, "destroy", "lab", "--volumes", "keep", "--yes")
    assert isinstance(refused.exception, InvalidInput)
    assert "gpuctl did not make node group theirs" in refused.exception.wrong

    cut = run(lab, "destroy", "lab", "--volumes", "keep", "--yes", "--foreign", "lab", "--output", "json")
    assert cut.exit_code == 1
    findings = json.loads(cut.stdout)["findings"]
    assert {(one["check"], one["verdict"]) for one in findings} == {
        *[("in-use", "FAIL"), ("remains", "FAIL"), ("remains", "WARN")],
    }
    assert any("Lambda VPC ENI" in one["message"] for one in findings)
    assert not [one for one in findings if one["verdict"] == "FAIL" and "costs money" in one["message"]]
    assert interface.id in ec2.enis
    assert "cluster" not in objects(lab.additions)

    del ec2.enis[interface.id]
    expire("lab")
    listed = run(lab, "reap")
    assert (listed.exit_code, "1 past their time to live" in listed.stdout) == (0, True), listed.output
    assert "nothing was removed" in listed.stdout
    finished = run(lab, "reap", "--volumes", "keep", "--yes")
    assert finished.exit_code == 0, finished.output
    assert objects(lab.additions)["role"] == 0
    assert other.id in ec2.vpcs
    assert run(lab, "destroy", "lab").exception is not None


def test_log_groups_stay_and_are_named_until_they_are_to_go(lab: Cloud) -> None:
    logs = backend("logs")
    backend("ec2").volumes.clear()  # of other tests
    for name in ("/aws/eks/lab/cluster", "/aws/eks/lab-2/cluster"):
        logs.create_log_group(name, {})
    listed = run(lab, "destroy", "lab")
    assert "stays   log group /aws/eks/lab/cluster: no --logs; 0.0 MiB stored, cost UNKNOWN" in listed.stdout
    done = run(lab, "destroy", "lab", "--yes")
    assert (done.exit_code, "costs an amount that is UNKNOWN" in done.stdout) == (0, True), done.output
    assert objects(lab.additions)["role"] == 0
    again = run(lab, "destroy", "lab", "--logs", "delete", "--yes")  # nothing else of it is left
    assert (again.exit_code, "deleted log group" in again.stderr) == (0, True), again.output
    assert set(logs.groups) == {"/aws/eks/lab-2/cluster"}
    assert isinstance(run(lab, "destroy", "lab").exception, InvalidInput)


def test_create_plans_asks_makes_and_says_what_is_not_checked(cloud: Cloud, tmp_path: Path) -> None:
    path = tmp_path / "small.yaml"
    small = FILE.replace("name: lab", "name: small").replace("p4d.24xlarge", "g4dn.xlarge").replace("cluster,", "none,")
    path.write_text(small)
    called = prediction.actions(cluster_file.check(small, "test"))
    none_yet = run(cloud, "resume", path, region=False)
    assert isinstance(none_yet.exception, InvalidInput)

    cloud.additions.answers |= planning_answers(called, denied=["iam:PassRole"])
    refused = run(cloud, "create", path, "--yes", region=False)
    assert (refused.exit_code, "nothing was made" in refused.stderr) == (1, True)
    assert objects(cloud.additions)["role"] == 0

    cloud.additions.answers |= planning_answers(called)
    unconfirmed = run(cloud, "create", path, region=False)
    assert isinstance(unconfirmed.exception, InvalidInput)
    cloud.additions.answers["AllocateAddress"] = (400, ERROR.format(code="AddressLimitExceeded", message="too many"))
    cut = run(cloud, "create", path, "--yes", region=False)
    assert isinstance(cut.exception, GpuctlError)
    assert cut.exception.exit_code == 3
    assert str(cut.exception) == "cannot make the Elastic IP nat: too many (AddressLimitExceeded)"
    assert "gpuctl eks resume" in cut.exception.hint

    del cloud.additions.answers["AllocateAddress"]
    finished = run(cloud, "resume", path, "--yes", region=False)
    assert finished.exit_code == 1
    assert "UNKNOWN  gpu-resources" in finished.stdout
    assert "then `gpuctl eks resume small` checks it again" in finished.stdout
    made = objects(cloud.additions)
    assert {name: made[name] for name in ("role", "nat", "node group", "addon", "security group")} == {
        "role": 2,
        "nat": 1,
        "node group": 1,
        "addon": 3,
        "security group": 0,
    }


def run(cloud: Cloud, *words: object, region: bool = True) -> Result:
    return CliRunner().invoke(app, ["eks", *map(str, words), *(REGION if region else ())])
