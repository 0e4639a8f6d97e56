"""Records of pods are read by kubectl, and no secret is in the text."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gpuctl.cli.kube.group import group
from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.edges.kube.kubectl import Kubectl
from gpuctl.kube.logs_ai import flow
from gpuctl.kube.logs_ai.flow import Redactor, Request, gather
from tests.rig.kube.standin_kubectl import standin_kubectl
from tests.rig.planted_secrets import KINDS, leaked, planted

EACH = 10
EVENT = {
    "type": "Warning",
    "reason": "BackOff",
    "count": 7,
    "lastTimestamp": "2026-01-01T00:11:00Z",
    "message": "Back-off restarting failed container",
}
NODE = {"metadata": {"name": "gpu-1"}, "status": {"allocatable": {"nvidia.com/gpu": "8"}}}


def crashed(name: str = "trainer-0", at: str = "2026-01-01T00:10:00Z", **container: Any) -> dict[str, Any]:
    end = {"exitCode": 1, "reason": "Error", "finishedAt": at}
    state = {"waiting": {"reason": "CrashLoopBackOff"}}
    status = {"name": "main", "restartCount": 4, "state": state, "lastState": {"terminated": end}}
    return {
        "metadata": {"name": name, "namespace": "team", "uid": "u", "ownerReferences": [{"kind": "Job", "name": "j"}]},
        "spec": {"nodeName": "gpu-1", "containers": [{"name": "main", "image": "a:1", **container}]},
        "status": {"phase": "Running", "startTime": "2026-01-01T00:00:00Z", "containerStatuses": [status]},
    }


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder of a stand-in for kubectl; the kubeconfig has the context dev."""
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("GPUCTL_CONFIG_DIR", str(tmp_path / "config"))
    context = {"name": "dev", "context": {"cluster": "c", "user": "u", "namespace": "team"}}
    config = {"apiVersion": "v1", "kind": "Config", "current-context": "dev", "contexts": [context]}
    (tmp_path / "kubeconfig").write_text(json.dumps(config))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    log = "step 1\nTraceback (most recent call last):\nValueError: bad\n"
    standin_kubectl(tmp_path, pod=crashed(), node=NODE, events=[EVENT], node_events=[], log="starting\n", previous=log)
    return tmp_path


def test_the_text_has_a_question_findings_facts_events_and_logs(folder: Path) -> None:
    text = gather(Kubectl("dev", "team"), Request(pod="trainer-0")).text
    for part in (
        "exception, line 3: ValueError: bad",
        "What caused the first failure in the log",
        "FAIL crash team/trainer-0: main ended with exit code 1 at 2026-01-01T00:10:00Z, restarts: 4",
        "owner: Job j",
        "2026-01-01T00:11:00Z Warning BackOff x7 (): Back-off restarting failed container",
        "=== log of main (the run that ended last) in team/trainer-0, >>> marks the first failure ===\nstep 1\n",
        ">>> ValueError: bad",
        "allocatable: nvidia.com/gpu=8",
    ):
        assert part in text


def test_two_hundred_secrets_of_twenty_kinds_in_logs_variables_and_manifests_stay(folder: Path) -> None:
    secrets = list(planted(EACH))
    assert len(secrets) >= 200
    assert len({one.kind for one in secrets}) >= 20
    in_secret, in_log = secrets[::4], secrets[1::4]
    in_script, in_variables = secrets[2::4], secrets[3::4]
    data = {f"k{n}": base64.b64encode(one.secret.encode()).decode() for n, one in enumerate(in_secret)}
    env = [{"name": f"V{n}_TOKEN", "value": one.secret} for n, one in enumerate(in_variables)]
    reference: dict[str, Any] = {"name": "DB", "valueFrom": {"secretKeyRef": {"name": "db", "key": "k0"}}}
    script = "set -e\n" + "\n".join(one.text for one in in_script)
    # Values of Secrets and variables stand in the log without any name.
    bare = [f"trying {one.secret} now" for one in (*in_secret, *in_variables)]
    log = "\n".join([*bare, *(one.text for one in in_log), "ValueError: bad"])
    events = [{**EVENT, "message": one.text} for one in in_log]
    standin_kubectl(
        folder,
        pod=crashed(
            env=[*env, reference],
            command=["sh", "-c", script],
            args=[one.text for one in in_script if "\n" not in one.text],
        ),
        secret={"data": data},
        previous=log,
        events=events,
    )
    bundle = gather(Kubectl("dev", "team"), Request(pod="trainer-0", most=1_000_000, lines=5000))
    assert leaked(secrets, bundle.text) == []
    assert bundle.secrets >= len(secrets)
    assert ">>> ValueError: bad" in bundle.text
    assert "V3_TOKEN" in bundle.text
    assert bundle.notes == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_secret_goes_and_the_text_around_it_stays(kind: str) -> None:
    for one in planted(2, seed=1):
        if one.kind == kind:
            clean = Redactor(()).text(f"step 1\n{one.text}\nstep 2")
            assert leaked([one], clean) == []
            assert "step 1\n" in clean
            assert "\nstep 2" in clean


def test_colours_do_not_hide_a_secret_and_a_progress_bar_shows_its_last_state() -> None:
    lines = Redactor(()).lines(["password=\x1b[32mhunter2x\x1b[0m", "10%\r20%\r30%\r", "a\x07b"])
    assert lines == ["password=<removed>", "30%", "a\\x07b"]


@pytest.mark.parametrize(
    "hidden",
    ["\x1b(B", "\x1b[0;1m", "\x1b]8;;x\x1b\\", "\x1bP1q\x1b\\", "\x1b=", "\x9b1m", "\u200b", "\u202e", "\U000e0041"],
)
def test_what_is_not_seen_does_not_hide_a_secret(hidden: str) -> None:
    assert Redactor(["tiger-42-lion"]).text(f"a {hidden}tiger-{hidden}42-lion b") == "a <removed> b"


def test_the_end_of_a_private_key_at_the_beginning_of_a_cut_log_goes(folder: Path) -> None:
    standin_kubectl(folder, previous="MIIEsecretsecret\nshort==\n-----END RSA PRIVATE KEY-----\nValueError: bad\n")
    text = gather(Kubectl("dev", "team"), Request(pod="trainer-0")).text
    assert "MIIE" not in text
    assert "short==" not in text


def test_secrets_that_may_not_be_read_are_named(folder: Path) -> None:
    env = [{"name": "DB", "valueFrom": {"secretKeyRef": {"name": "db", "key": "k"}}}]
    standin_kubectl(folder, pod=crashed(env=env))
    bundle = gather(Kubectl("dev", "team"), Request(pod="trainer-0"))
    assert bundle.notes == ["these Secrets could not be read, so their values may be in the text: db"]


def test_what_cannot_be_read_is_unknown(folder: Path) -> None:
    for name in ("node", "events", "previous", "log"):
        (folder / name).unlink()
    text = gather(Kubectl("dev", "team"), Request(pod="trainer-0")).text
    assert (
        "UNKNOWN node team/trainer-0: its node cannot be read: Error from server (Forbidden): node is forbidden" in text
    )
    assert "UNKNOWN log team/trainer-0, log of main (the run that ended last): it cannot be read: Error" in text
    assert text.count("(unknown: Error from server (Forbidden)") == 3


def test_a_container_that_runs_again_has_two_logs(folder: Path) -> None:
    pod = crashed()
    pod["status"]["containerStatuses"][0]["state"] = {"running": {"startedAt": "2026-01-01T00:12:00Z"}}
    standin_kubectl(folder, pod=pod)
    text = gather(Kubectl("dev", "team"), Request(pod="trainer-0")).text
    assert "=== log of main (the run that ended last) in team/trainer-0, >>> marks" in text
    assert "=== log of main in team/trainer-0 ===\nstarting\n" in text
    assert "WARN crash team/trainer-0: main ended with exit code 1" in text


def test_of_many_pods_those_that_failed_first_are_read(folder: Path) -> None:
    pods = [crashed(f"trainer-{n}", f"2026-01-01T00:1{9 - n}:00Z") for n in range(8)]
    standin_kubectl(folder, pods=pods)
    bundle = gather(Kubectl("dev", "team"), Request(selector="app=x"))
    assert "8 pods with the labels app=x" in bundle.text
    assert bundle.text.index("=== pod team/trainer-7 ===") < bundle.text.index("=== pod team/trainer-3 ===")
    assert "=== pod team/trainer-2 ===" not in bundle.text
    assert "team/trainer-2: CrashLoopBackOff, node gpu-1" in bundle.text
    assert bundle.text.count("=== node gpu-1 ===") == 1
    assert any("not of team/trainer-2, team/trainer-1, team/trainer-0" in note for note in bundle.notes)


def test_messages_of_pods_whose_logs_are_not_read_have_no_secrets(folder: Path) -> None:
    pods = [crashed(f"trainer-{n}", f"2026-01-01T00:1{9 - n}:00Z") for n in range(7)]
    pods[0]["spec"]["containers"][0]["envFrom"] = [{"secretRef": {"name": "db"}}]
    terminated = pods[0]["status"]["containerStatuses"][0]["lastState"]["terminated"]
    terminated["message"] = "cannot log in with tiger-42-lion"
    standin_kubectl(folder, pods=pods, secret={"data": {"k": base64.b64encode(b"tiger-42-lion").decode()}})
    bundle = gather(Kubectl("dev", "team"), Request(selector="app=x"))
    assert "=== pod team/trainer-0 ===" not in bundle.text
    assert "it wrote: cannot log in with <removed>" in bundle.text
    assert "tiger" not in bundle.text


@pytest.mark.parametrize("before", ["x" * 392 + " ", ""])
def test_a_value_is_removed_before_a_message_is_cut_or_joined(folder: Path, before: str) -> None:
    value = "tiger  42\tlion eats much"
    pod = crashed(envFrom=[{"secretRef": {"name": "db"}}])
    pod["status"]["containerStatuses"][0]["lastState"]["terminated"]["message"] = f"{before}{value}"
    pod["status"]["conditions"] = [{"type": "Ready", "status": "False", "message": f"{before}{value}"}]
    events = [{**EVENT, "message": f"{before}{value}"}]
    node = {**NODE, "status": {"conditions": [{"type": "Ready", "status": "False", "message": f"{before}{value}"}]}}
    data = {"k": base64.b64encode(value.encode()).decode()}
    standin_kubectl(folder, pod=pod, secret={"data": data}, events=events, node=node, node_events=events)
    assert "tiger" not in gather(Kubectl("dev", "team"), Request(pod="trainer-0")).text


def test_no_pod_and_no_container_of_that_name_are_errors(folder: Path) -> None:
    standin_kubectl(folder, pods=[])
    with pytest.raises(GpuctlError, match="the namespace team has none"):
        gather(Kubectl("dev", "team"), Request(selector="app=x"))
    with pytest.raises(GpuctlError, match="it has no container side"):
        gather(Kubectl("dev", "team"), Request(pod="trainer-0", container="side"))


def run(*words: str, stdin: str = "") -> Result:
    return CliRunner().invoke(group, ["logs-ai", *words], input=stdin)


def standin_ai(folder: Path, ends: str = "exit 0") -> Path:
    """A stand-in for an AI that keeps its arguments and its question."""
    (folder / "standin-ai").write_text(
        f'#!/bin/sh\necho "$#:$*" >{folder}/arguments\ncat >>{folder}/question\n{ends}\n'
    )
    (folder / "standin-ai").chmod(0o755)
    return folder / "question"


def test_exactly_what_is_shown_is_passed_once(folder: Path) -> None:
    question = standin_ai(folder)
    result = run("trainer-0", "--program", "standin-ai -p 'two words; $(touch x)'", "--yes")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith(question.read_text())
    assert result.stdout.removeprefix(question.read_text()).startswith("\n=== answer of standin-ai -p ")
    assert (folder / "arguments").read_text() == "2:-p two words; $(touch x)\n"


def test_the_command_of_the_settings_is_asked_with_the_users_question(folder: Path) -> None:
    question = standin_ai(folder)
    (folder / "config").mkdir()
    (folder / "config/settings.yml").write_text("ask: [standin-ai]\n")
    result = run("trainer-0", "--send", "--question", "Is it the node?", stdin="y\n")
    assert result.exit_code == 0, result.output
    assert "Send this to `standin-ai`?" in result.stderr
    assert "Is it the node?" in question.read_text()


def test_nothing_is_sent_without_consent_or_without_a_program(folder: Path) -> None:
    question = standin_ai(folder)
    assert run("trainer-0").exit_code == 0
    assert run("trainer-0", "--program", "standin-ai", stdin="n\n").exit_code == 1  # click's own; 130 in a process
    assert run("trainer-0", "--program", "standin-ai").exit_code == 1
    assert not question.exists()


def test_a_program_that_fails_is_an_error(folder: Path) -> None:
    standin_ai(folder, "exit 7")
    result = run("trainer-0", "--program", "standin-ai", "--yes")
    assert isinstance(result.exception, GpuctlError)
    assert "cannot ask standin-ai: it ended with exit status 7" in str(result.exception)


@pytest.mark.parametrize("program", ["not-installed", "a 'b", "''", " "])
def test_a_program_that_cannot_be_started_is_refused_before_anything_is_read(folder: Path, program: str) -> None:
    (folder / "pod").unlink()
    assert isinstance(run("trainer-0", "--program", program).exception, InvalidInput)


@pytest.mark.parametrize("words", [(), ("a", "-l", "b=c"), ("a", "--yes"), ("a", "--most", "10")])
def test_arguments_that_contradict_each_other_are_refused(words: tuple[str, ...]) -> None:
    assert run(*words).exit_code == 2


def test_a_log_that_was_cut_says_so(folder: Path) -> None:
    text = gather(Kubectl("dev", "team"), Request(pod="trainer-0", lines=3)).text
    assert "exception, line 3: ValueError: bad (last 3 lines read; an earlier failure may be above)" in text
    assert "in team/trainer-0, last 3 lines read; an earlier failure may be above, >>> marks" in text
    assert "may be above" not in gather(Kubectl("dev", "team"), Request(pod="trainer-0", lines=4)).text


@pytest.mark.parametrize("mark", ["\r", " "])
def test_one_endless_line_is_not_empty(folder: Path, monkeypatch: pytest.MonkeyPatch, mark: str) -> None:
    monkeypatch.setattr(flow, "MOST_LOG", 2000)
    standin_kubectl(folder, previous=mark.join(f"{n}%" for n in range(1000)) + "\n")
    text = gather(Kubectl("dev", "team"), Request(pod="trainer-0")).text
    assert "(empty)" not in text
    assert ("999%" if mark == "\r" else "610% 611%") in text
