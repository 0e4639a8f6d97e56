"""What the module is answered: where it works, what it may not see, and what only the command knows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpuctl.cli.cluster import deploy_report
from gpuctl.cluster.deploy import module_main, via_ansible
from gpuctl.cluster.deploy.apply import Applied
from gpuctl.cluster.deploy.destroy import EnvironmentObjects
from gpuctl.cluster.deploy.model import Change, Field, ObjectState, Plan, digest
from gpuctl.core.errors import GpuctlError
from tests.rig.cluster.files import write
from tests.rig.cluster.snapshots import env_of

SET = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "lab"}}
NOBODY = """current-context: a
contexts: [{name: a, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "https://elsewhere.example.org"}}]
users: [{name: u, user: {token: t}}]
"""


def answer(**asked: object) -> Mapping[str, Any]:
    """What the program answers, started at the root as the module starts it in the playbook's folder."""
    argv = [sys.executable, "-m", "gpuctl.cluster.deploy.module_main"]
    given = json.dumps({"state": "present", "cluster": "lab", "context": "", **asked})
    env = {**os.environ, "KUBECONFIG": "./kubeconfig"}
    done = subprocess.run(argv, cwd="/", env=env, input=given, capture_output=True, text=True, check=True, timeout=60)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_file_and_a_relative_kubeconfig_are_found_in_the_folder_that_is_given(tmp_path: Path) -> None:
    (tmp_path / "clusters").mkdir()
    write(tmp_path / "clusters")
    (tmp_path / "kubeconfig").write_text(NOBODY)
    told = answer(cluster="lab", folder=str(tmp_path))
    assert "the kubeconfig's context leads to https://elsewhere.example.org" in told["msg"]


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    told = answer(folder=str(tmp_path / "gone"))
    assert told["msg"] == f"cannot work in the folder {tmp_path / 'gone'}: No such file or directory"


def test_removing_has_failed_where_nobody_knows_whether_more_is_there(tmp_path: Path) -> None:
    found = EnvironmentObjects([SET], [], ["you may not list secrets"])
    told = module_main.removed(env_of(tmp_path), found, Applied(["StatefulSet lab"]))
    assert (
        told["error"]["wrong"]
        == "some kinds of objects could not be listed, so objects may remain: you may not list secrets"
    )
    assert told["msg"] == f"cannot destroy lab: {told['error']['wrong']}"
    assert (told["changed"], told["cluster"]["applied"]) == (True, ["StatefulSet lab"])
    nothing = module_main.removed(
        env_of(tmp_path), EnvironmentObjects([], [], ["you may not list all kinds"]), Applied()
    )
    assert ("error" in nothing, nothing["changed"]) == (True, False)


def test_removing_is_well_where_all_could_be_looked_for(tmp_path: Path) -> None:
    told = module_main.removed(env_of(tmp_path), EnvironmentObjects([SET], []), Applied(["StatefulSet lab"]))
    assert (told["changed"], {"msg", "error"} & set(told)) == (True, set())


def test_why_it_is_tcp_is_reported_although_the_module_was_given_the_mode(tmp_path: Path) -> None:
    plan = Plan(env_of(tmp_path), (), (), (), fell_back="there are no adapters")
    told = via_ansible.answered(plan, {"cluster": {"mode": "tcp", "fell_back": ""}})
    assert told == {"mode": "tcp", "fell_back": "there are no adapters"}
    with pytest.raises(GpuctlError, match="cannot deploy lab: it is late") as error:
        via_ansible.answered(plan, {"cluster": {}, "error": {"wrong": "it is late", "hint": "go home"}})
    assert error.value.hint == "go home"


def replicas(folder: Path, before: int) -> Plan:
    """A plan that sets the number of pods to 4, shown from `before`; its Secret is filled."""
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "lab"}, "data": {"password": "x"}}
    change = Change("StatefulSet", "lab", "change", (Field("spec.replicas", before, 4),))
    return Plan(env_of(folder), (), (change,), (ObjectState(SET), ObjectState(secret)))


def test_a_plan_that_differs_from_the_confirmed_one_is_not_applied(tmp_path: Path) -> None:
    confirmed = digest(replicas(tmp_path, 2))
    module_main.check_confirmed(replicas(tmp_path, 2), confirmed)
    module_main.check_confirmed(replicas(tmp_path, 3), "")  # nobody confirmed one
    with pytest.raises(GpuctlError, match="changed after the plan was shown, so nothing was applied") as error:
        module_main.check_confirmed(replicas(tmp_path, 3), confirmed)
    assert "change StatefulSet lab" in error.value.hint


def test_a_plan_has_another_digest_where_its_objects_differ_but_not_where_its_secrets_do(tmp_path: Path) -> None:
    plan = replicas(tmp_path, 2)
    statefulset, secret = plan.states
    other_password = ObjectState({**secret.desired, "data": {"password": "y"}})
    assert digest(replace(plan, states=(statefulset, other_password))) == digest(plan)
    other_image = ObjectState({**SET, "spec": {"image": "another"}})
    assert digest(replace(plan, states=(other_image, secret))) != digest(plan)


def test_without_the_right_to_list_nobody_says_that_nothing_is_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    deploy_report.removing(EnvironmentObjects([], [], ["you may not list secrets"]), env_of(tmp_path), ())
    assert capsys.readouterr().out == "UNKNOWN whether anything exists: you may not list secrets\n"
    deploy_report.removing(EnvironmentObjects([], []), env_of(tmp_path), ())
    assert capsys.readouterr().out == "lab has no objects in team\n"
