"""`gpuctl reservations deploy`: people by their ids in IAM (moto), and code that runs with botocore alone."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import botocore
import pytest
from click.testing import CliRunner, Result

from gpuctl.cli.app import app
from gpuctl.core.errors import GpuctlError
from gpuctl.edges.aws import Aws
from gpuctl.reservations.rules.model import HOUR, Node, Site
from gpuctl.reservations.stores.dynamodb import DynamoStore, read_answer
from tests.rig.aws_endpoint import LOGIN, client, moto_endpoint
from tests.rig.reservations.aws_table import aws_login, new_table
from tests.rig.reservations.standin_lambda import ACCOUNT, role, user_ids_of_aws

PIN = {"StringEquals": {"sts:RoleSessionName": "${aws:username}"}}
SSO = "AWSReservedSSO_Research_0123456789abcdef"
PINNED = {
    "Effect": "Allow",
    "Principal": {"AWS": f"arn:aws:iam::{ACCOUNT}:root"},
    "Action": "sts:AssumeRole",
    "Condition": PIN,
}


@pytest.fixture(scope="module")
def moto() -> Iterator[str]:
    with user_ids_of_aws(), moto_endpoint() as url:
        role(url, "gpu-users", {"Version": "2012-10-17", "Statement": [PINNED]})
        role(url, "pods", {"Version": "2012-10-17", "Statement": [{**PINNED, "Condition": {}}]})
        client(url, "iam").create_user(UserName="ada")
        path = "/aws-reserved/sso.amazonaws.com/eu-west-1/"
        client(url, "iam").create_role(RoleName=SSO, Path=path, AssumeRolePolicyDocument='{"Statement": []}')
        yield url


@pytest.fixture
def endpoint(moto: str) -> Iterator[str]:
    with aws_login(moto):
        yield moto


def deploy(*words: str) -> Result:
    return CliRunner().invoke(app, ["reservations", "deploy", *words])


@pytest.mark.usefixtures("endpoint")
def test_the_template_is_printed_and_nothing_is_changed() -> None:
    result = deploy("--role", "gpu-users", "--user", "ada")
    assert result.exit_code == 0, result.output
    people = json.loads(result.stdout)["Resources"]["PeoplePolicy"]["Properties"]
    assert (people["Roles"], people["Users"]) == (["gpu-users"], ["ada"])
    assert "nothing on AWS was changed" in result.stderr


@pytest.mark.usefixtures("endpoint")
@pytest.mark.parametrize("words", [("--user", "ada=ada.l"), ("--role", SSO)])
def test_users_under_other_names_and_a_role_of_identity_center_are_accepted_alone(words: tuple[str, ...]) -> None:
    assert deploy(*words).exit_code == 0


@pytest.mark.usefixtures("endpoint")
@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        ([], "nobody may send"),
        (["--role", "pods"], "does not demand the session name"),
        (["--role", "missing"], "cannot read the role missing"),
        (["--user", "missing"], "cannot read the user missing"),
        (["--user", "ada", "--name", "a b"], "cannot be the name"),
        (["--user", "ada", "--admin", "a b"], "no name of a person"),
        (["--user", "ada", "--group", "ada"], "not NAME=VALUE"),
        (["--user", "ada="], "not NAME or NAME=VALUE"),
        (["--user", "ada=bob", "--role", "gpu-users"], "--user ada=bob is the name"),
        (["--user", "ada", "--role", SSO], "logins of IAM Identity Center"),
        (["--role", "gpu-users", "--role", SSO], "logins of IAM Identity Center"),
    ],
)
def test_bad_input_writes_nothing(tmp_path: Path, words: list[str], wrong: str) -> None:
    error = deploy(*words, "--folder", str(tmp_path / "out")).exception
    assert isinstance(error, GpuctlError)
    assert (error.exit_code, wrong in str(error)) == (2, True), str(error)
    assert not (tmp_path / "out").exists()


def test_the_code_answers_in_a_python_that_has_nothing_but_botocore(endpoint: str, tmp_path: Path) -> None:
    folder, code = tmp_path / "out", tmp_path / "code"
    assert deploy("--user", "ada", "--admin", "ada", "--folder", str(folder)).exit_code == 0
    first = (folder / "function.zip").read_bytes()
    assert deploy("--user", "ada", "--admin", "ada", "--folder", str(folder)).exit_code == 0
    assert (folder / "function.zip").read_bytes() == first, "the same input makes another archive"
    zipfile.ZipFile(folder / "function.zip").extractall(code)
    table = new_table(endpoint)
    store = DynamoStore(Aws(), table, Site(), [Node("gpu-1", "h100", (None,) * 8)])
    store.put_site()
    sender = client(endpoint, "iam").get_user(UserName="ada")["User"]["UserId"]
    assert _call(code, endpoint, table, sender) == {"batchItemFailures": []}
    answer = read_answer(Aws(), table, sender, "key-0001")
    assert answer is not None
    assert answer["reservation"]["person"] == "ada"
    answer = read_answer(Aws(), table, sender, "key-0002")
    assert answer is not None
    assert [node["state"] for node in answer["nodes"]] == ["unknown"], "no service has reported"
    assert "reported never" in answer["nodes"][0]["reason"]


def _call(code: Path, url: str, table: str, sender: str) -> Any:
    """The answer of the function to a batch; Python sees the code, and links to botocore and what it needs."""
    libraries = code.parent / "runtime"
    libraries.mkdir()
    site = Path(botocore.__file__).parents[1]
    for name in ("botocore", "jmespath", "dateutil", "urllib3", "six.py"):
        (libraries / name).symlink_to(site / name)
    calls = (
        {"do": "submit", "key": "key-0001", "request": {"gpus": 1, "length_s": HOUR}},
        {"do": "state", "key": "key-0002"},
    )
    records = [
        {
            "messageId": f"m{number}",
            "body": json.dumps(call),
            "attributes": {"SenderId": sender},
            "messageAttributes": {},
            "eventSource": "aws:sqs",
            "eventSourceARN": "arn:queue",
        }
        for number, call in enumerate(calls)
    ]
    program = (
        "import json, sys; sys.path[:0] = sys.argv[1:3]; from gpuctl.reservations.on_lambda import handler; "
        "from types import SimpleNamespace; context = SimpleNamespace(get_remaining_time_in_millis=lambda: 60_000); "
        "print(json.dumps(handler(json.load(sys.stdin), context)))"
    )
    variables = {**LOGIN, "AWS_ENDPOINT_URL": url, "GPUCTL_TABLE": table, "GPUCTL_QUEUE_ARN": "arn:queue"}
    command = [sys.executable, "-I", "-S", "-c", program, str(code), str(libraries)]
    text = json.dumps({"Records": records})
    done = subprocess.run(command, input=text, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
