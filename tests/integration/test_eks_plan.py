"""`gpuctl eks` against an AWS endpoint over HTTP (moto), with quotas, versions and permissions that a proxy adds.

moto has no quotas of EC2, no capacity reservations, no versions of EKS and no simulation of policies: the proxy answers
for these in AWS's form.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gpuctl.cli.app import app
from gpuctl.core.errors import GpuctlError
from gpuctl.core.paths import cache_dir
from gpuctl.eks.price_list import PRODUCTS
from gpuctl.workflows import eks_prices
from tests.rig.aws_endpoint import (
    LOGIN,
    Answer,
    added_answers_proxy,
    client,
    make_public,
    moto_endpoint,
    vpc_with_subnets,
)
from tests.rig.eks_answers import NO_PLACEMENT_GROUPS, beside, planning_answers, product

CALLED = (
    *("eks:CreateCluster", "eks:CreateNodegroup", "eks:CreateAddon", "eks:TagResource", "iam:CreateRole"),
    *(
        "iam:TagRole",
        "iam:AttachRolePolicy",
        "iam:PassRole",
        "ec2:CreateLaunchTemplate",
        "ec2:RunInstances",
        "ec2:CreateTags",
    ),
)


@dataclass(frozen=True)
class Cloud:
    url: str
    subnets: tuple[str, ...]


@pytest.fixture(autouse=True)
def prices_of_each_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prices that a test or the user stored are in no other test."""
    monkeypatch.setenv("GPUCTL_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def cloud() -> Iterator[Cloud]:
    """Two small subnets in two zones, and one running g4dn.xlarge."""
    with moto_endpoint() as url:
        ec2 = client(url)
        vpc, subnets = vpc_with_subnets(ec2, "10.0.1.0/25", "10.0.2.0/25")
        make_public(ec2, vpc, subnets)
        ec2.run_instances(
            ImageId="ami-12c6146b", MinCount=1, MaxCount=1, InstanceType="g4dn.xlarge", SubnetId=subnets[0]
        )
        yield Cloud(url, tuple(subnets))


def file(folder: Path, cloud: Cloud, most: int = 4, more: str = "") -> Path:
    path = folder / "lab.yaml"
    path.write_text(
        f"name: lab\nregion: us-east-1\nversion: '1.36'\nsubnets: [{', '.join(cloud.subnets)}]\n{more}"
        f"node_groups:\n  - {{name: gpu, instance_type: g4dn.xlarge, min: 0, max: {most}, desired: 1}}\nttl: 8h\n"
    )
    return path


def run(url: str, *words: object) -> Result:
    # moto answers 500 now and then to requests that arrive at the same time; AWS is asked again, too.
    environment = {**LOGIN, "AWS_ENDPOINT_URL": url, "AWS_MAX_ATTEMPTS": "3"}
    return CliRunner().invoke(app, ["eks", *map(str, words)], env={**environment})


def planned(cloud: Cloud, path: Path, denied: tuple[str, ...] = ()) -> tuple[int, dict[str, Any]]:
    with added_answers_proxy(cloud.url, planning_answers(CALLED, denied=denied) | NO_PLACEMENT_GROUPS) as url:
        result = run(url, "plan", path, "--output", "json")
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    document: dict[str, Any] = json.loads(result.stdout)
    return result.exit_code, document


def bad(document: dict[str, Any]) -> list[tuple[str, str]]:
    return [(one["check"], one["verdict"]) for one in document["findings"] if one["verdict"] != "OK"]


def test_a_cluster_that_would_come_up_has_no_finding_and_a_price(cloud: Cloud, tmp_path: Path) -> None:
    code, document = planned(cloud, file(tmp_path, cloud))
    assert (code, bad(document)) == (0, []), [one["message"] for one in document["findings"] if one["verdict"] != "OK"]
    assert document["usd_hour"] == pytest.approx(0.10 + 0.526)
    assert document["usd_until_end"] == pytest.approx(8 * 0.626, abs=0.01)
    assert document["price_date"] == "2026-07-20"
    assert document["is_lower_bound"]  # without the disks


def priced(cloud: Cloud, path: Path, answer: Answer | None, *words: str) -> tuple[int, dict[str, Any]]:
    """A plan, with this answer of the Pricing API."""
    answers = planning_answers(CALLED) | NO_PLACEMENT_GROUPS | ({"GetProducts": answer} if answer else {})
    with added_answers_proxy(cloud.url, answers) as url:
        result = run(url, "plan", path, "--output", "json", *words)
    document: dict[str, Any] = json.loads(result.stdout)
    return result.exit_code, document


# Of the instance type, and of what costs beside it.
UNPRICED = (("prices", "UNKNOWN"), *([("prices", "WARN")] * len(PRODUCTS)))


def test_prices_of_the_pricing_api_are_stored_for_later_plans(cloud: Cloud, tmp_path: Path) -> None:
    path, today = file(tmp_path, cloud), str(datetime.now(UTC).date())
    denied = (400, json.dumps({"__type": "AccessDeniedException", "message": "not allowed"}))
    code, document = priced(cloud, path, denied, "--prices")
    assert (code, bad(document), document["price_date"]) == (1, [*UNPRICED], "2026-07-20")
    assert "no permission for pricing:GetProducts" in json.dumps(document)
    products = [product("0.7", region="us-east-1"), *beside("us-east-1")]
    listed = (200, json.dumps({"FormatVersion": "aws_v1", "PriceList": products}))
    for answer, words in ((listed, ["--prices"]), (None, []), (denied, ["--prices"])):
        code, document = priced(cloud, path, answer, *words)
        assert (document["usd_hour"], document["price_date"]) == (pytest.approx(0.8 + 200 * 0.0001), today), words
        assert not document["is_lower_bound"]
        assert (code, bad(document)) == ((1, [*UNPRICED]) if answer is denied else (0, [])), words
    assert eks_prices.of_balancer("us-east-1").startswith("0.02 USD an hour (AWS Pricing API (in effect since")
    endless = (200, json.dumps({"PriceList": [product("0.9", region="us-east-1")], "NextToken": "again"}))
    code, document = priced(cloud, path, endless, "--prices")
    assert (code, document["usd_hour"]) == (1, pytest.approx(0.82))


def test_a_damaged_file_of_prices_is_named_and_written_again(cloud: Cloud, tmp_path: Path) -> None:
    path, stored = file(tmp_path, cloud), cache_dir() / "eks-prices" / "us-east-1.json"
    stored.parent.mkdir(parents=True, exist_ok=True)
    stored.write_text("{")
    code, document = priced(cloud, path, None)
    assert (code, bad(document)) == (1, [("prices", "UNKNOWN")])
    assert "--prices` writes it again" in json.dumps(document)
    listed = (200, json.dumps({"PriceList": [product("0.7", region="us-east-1")]}))
    assert priced(cloud, path, listed, "--prices")[1]["usd_hour"] == pytest.approx(0.8)
    assert stored.stat().st_mode & 0o777 == 0o600


def test_more_nodes_than_the_quota_and_the_subnets_hold(cloud: Cloud, tmp_path: Path) -> None:
    code, document = planned(cloud, file(tmp_path, cloud, most=40))
    found = {one["check"]: one for one in document["findings"]}
    assert code == 1
    assert found["quota"]["message"] == "160 vCPUs are needed beside 4 that run now, and the quota is 64"
    assert found["addresses"]["verdict"] == "FAIL"
    assert "of 40 nodes of gpu fit" in found["addresses"]["message"]


def test_subnets_in_which_nodes_could_not_join(cloud: Cloud, tmp_path: Path) -> None:
    _, closed = vpc_with_subnets(client(cloud.url), "10.0.1.0/25", "10.0.2.0/25")
    code, document = planned(cloud, file(tmp_path, Cloud(cloud.url, tuple(closed))))
    found = {one["message"] for one in document["findings"] if (one["check"], one["verdict"]) == ("network", "FAIL")}
    assert code == 1
    assert "enableDnsHostnames off: EKS needs both, and nodes do not join" in found
    assert any("no route leads to the internet, and no endpoint serves" in message for message in found)


def test_a_denied_action_and_a_budget_that_is_too_small(cloud: Cloud, tmp_path: Path) -> None:
    path = file(tmp_path, cloud, more="budget_usd: 3\n")
    code, document = planned(cloud, path, denied=("iam:PassRole", "eks:CreateCluster"))
    assert (code, bad(document)) == (1, [("permissions", "FAIL"), ("budget", "FAIL")])


def test_what_aws_does_not_answer_is_unknown_and_the_sum_too(cloud: Cloud, tmp_path: Path) -> None:
    result = run(cloud.url, "plan", file(tmp_path, cloud))
    assert result.exit_code == 1
    assert "sum: UNKNOWN, as a price is not known" in result.stdout
    assert {line.split()[1] for line in result.stdout.splitlines() if line.startswith("UNKNOWN")} == {
        "permissions",
        "parts",
        "limit",
        "version",
        "quota",
    }


def test_subnets_that_do_not_exist_are_named(cloud: Cloud, tmp_path: Path) -> None:
    path = file(tmp_path, Cloud(cloud.url, ("subnet-0a1b2c3d", "subnet-4e5f6a7b")))
    _, document = planned(cloud, path)
    found = {one["check"]: one for one in document["findings"]}
    assert found["zones"]["message"] == "no subnet subnet-0a1b2c3d, subnet-4e5f6a7b in us-east-1"


def test_a_file_with_mistakes_is_refused_before_aws_is_asked(cloud: Cloud, tmp_path: Path) -> None:
    path = file(tmp_path, cloud, more="cni: [WARM=1]\n")
    with added_answers_proxy(cloud.url, {}) as url:
        for words, wrong in ((path, "WARM is not among those"), ("nobody", "no file has this name")):
            error = run(url, "plan", words).exception
            assert isinstance(error, GpuctlError)
            assert (error.exit_code, wrong in error.wrong) == (2, True)


def test_init_writes_a_file_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CLUSTER_NAME", "first")
    assert run("", "init").exit_code == 0
    text = (tmp_path / "eks/first.yaml").read_text()
    assert "name: first" in text
    again = run("", "init").exception
    assert isinstance(again, GpuctlError)
    assert (again.exit_code, again.wrong) == (2, "it exists")
    assert (tmp_path / "eks/first.yaml").read_text() == text
