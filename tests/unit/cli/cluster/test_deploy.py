"""`gpuctl cluster diff` and `deploy` as programs read them, and a question that is asked about a plan one can see."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gpuctl.cli.cluster import deploy
from gpuctl.cluster import planned_deploy
from gpuctl.cluster.deploy import via_ansible
from gpuctl.cluster.deploy.model import Change, Field, Plan, plan_as_dict
from gpuctl.core.errors import InvalidInput
from gpuctl.domain.findings import Finding, Verdict
from tests.rig.cluster.snapshots import env_of
from tests.rig.reports import valid_json

FINDING = Finding("quota", "Quota gpus", Verdict.WARN, "2 of 16 GPUs are left")
RECREATED = Change("StatefulSet", "lab", "recreate", (Field("spec.serviceName", "a", "b"),))


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    """The plan that every command makes; `with_consent` changes nothing."""
    made = Plan(env_of(tmp_path), [FINDING], [RECREATED], [])
    planned: Any = SimpleNamespace(plan=made, file=tmp_path, context="", access=None)
    planned.with_consent = lambda **_: planned
    monkeypatch.setattr(planned_deploy, "plan", lambda *_: planned)
    monkeypatch.setattr("gpuctl.cluster.train.active_training.ends_pods", lambda _: False)
    return made


def run(command: Any, *words: str) -> Result:
    return CliRunner().invoke(command, ["lab", *words])


def test_a_plan_is_a_report(plan: Plan) -> None:
    for command, words, name in ((deploy.diff, [], "cluster diff"), (deploy.deploy, ["--check"], "cluster deploy")):
        shown = valid_json(run(command, "-o", "json", *words).stdout)
        assert (shown["command"], shown["exit_code"], shown["verdict"]) == (name, 0, "WARN")
        assert shown["findings"] == [{"target": plan.env.name, **FINDING.as_dict()}]
        assert [change["action"] for change in shown["changes"]] == ["recreate"]


def test_a_deployment_is_a_report(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    done = {**plan_as_dict(plan), "applied": ["StatefulSet lab"]}
    monkeypatch.setattr(via_ansible, "deploy", lambda *_: done)
    shown = valid_json(run(deploy.deploy, "--yes", "-o", "json").stdout)
    assert (shown["command"], shown["exit_code"], shown["applied"]) == ("cluster deploy", 0, ["StatefulSet lab"])
    assert shown["findings"] == [{"target": plan.env.name, **FINDING.as_dict()}]


@pytest.mark.usefixtures("plan")
@pytest.mark.parametrize("form", ["json", "yaml"])
def test_the_plan_is_shown_on_standard_error_before_the_question(form: str) -> None:
    asked = run(deploy.deploy, "-o", form)
    assert isinstance(asked.exception, InvalidInput)  # there is no terminal
    assert "RECREATE StatefulSet lab" in asked.stderr
    assert 'spec.serviceName: "a" -> "b"' in asked.stderr
    assert "2 of 16 GPUs are left" in asked.stderr
    assert asked.stdout == ""
