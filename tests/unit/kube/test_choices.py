"""What is offered: lines of pods, the palette, the wizard, kept forwards."""

from __future__ import annotations

import base64
import os
from pathlib import Path

import pytest

from gpuctl.cli.kube.pod import pod as pod_commands
from gpuctl.core.errors import InvalidInput
from gpuctl.edges.kube import kubectl
from gpuctl.kube import palette, popup
from gpuctl.kube.choose import folder_of_pane, pod_lines
from gpuctl.kube.forward import saved
from gpuctl.kube.forward.model import Request, Slot
from gpuctl.kube.forward.state_machine import Line, State
from gpuctl.kube.forward.table import as_line, drawn
from gpuctl.kube.forward.wizard import offers
from gpuctl.kube.model import Container, Pod
from gpuctl.kube.pod import ACTIONS
from gpuctl.kube.pod_secrets import decoded, literals, secrets_of
from gpuctl.kube.resources import fit


def pod(name: str, **more: str) -> Pod:
    labels = {"app": "web", "pod-template-hash": "abc", **more}
    containers = (Container("main", ports=(8080,), restarts=2),)
    return Pod(name, "default", f"uid-{name}", "Running", ready=True, labels=labels, containers=containers)


def test_pods_are_listed_in_columns() -> None:
    assert pod_lines([pod("a"), pod("long-name")]) == [
        "default  a          Running  2 restarts",
        "default  long-name  Running  2 restarts",
    ]


def test_the_wizard_offers_shared_labels_but_no_labels_of_single_pods() -> None:
    assert offers([pod("a"), pod("b", role="x")], ["mine"]) == [
        "saved\tmine\t",
        "label\tapp=web\tall 2 pods",
        "pod\ta\tport 8080",
        "pod\tb\tport 8080",
    ]


def test_the_palette_shows_only_what_is_installed() -> None:
    def lines(*installed: str) -> list[str]:
        return [entry.does for entry in palette.entries(lambda name: name in installed)]

    assert not [line for line in lines() if line.startswith(("helm", "terraform"))]
    assert [line.split(":")[0] for line in lines("helm", "terraform")].count("terraform") == 2
    assert len(set(lines("helm", "terraform"))) == len(lines("helm", "terraform"))


def test_every_line_of_the_palette_can_be_filled_in() -> None:
    names = {"CONTEXT": "dev", "NAMESPACE": "web", "ITEM": "x"}
    for entry in palette.entries(lambda _: True):
        argv = [*palette.filled(entry.choices, names), *palette.filled(entry.run, names)]
        assert not [word for word in argv if word.startswith("$")]
        assert bool(entry.choices) == ("$ITEM" in entry.run)


def test_commands_of_the_palette_that_last_have_a_window() -> None:
    """`window.sh` starts commands of `gpuctl kube` only."""
    with_window = {entry.window: entry.run for entry in palette.entries(lambda _: True) if entry.window}
    assert with_window.keys() == {"watch", "top"}
    assert {tuple(run[:2]) for run in with_window.values()} == {("gpuctl", "kube")}
    lasting = {action.window for action in ACTIONS.values() if action.window}
    assert lasting == {"shell", "logs"}
    assert lasting <= pod_commands.commands.keys()


def test_outside_of_a_popup_nothing_opens_a_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GPUCTL_POPUP", raising=False)
    assert popup.open_window("logs", ["pod", "logs", "a"]) is False


def test_an_option_without_a_value_is_dropped() -> None:
    argv = ["kubectl", "--context", "$CONTEXT", "get", "pods"]
    assert palette.filled(argv, {"CONTEXT": ""}) == ["kubectl", "get", "pods"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GPUCTL_CONFIG_DIR", str(tmp_path))
    return tmp_path / "forwards"


@pytest.mark.parametrize(
    "request_",
    [
        Request((8080,), selector="app=web", first=8081, context="dev", namespace="web"),
        Request((8080, 9090), pod="web-0", local=(9000, 0), namespace="web"),
    ],
)
def test_a_saved_forward_is_loaded_unchanged(folder: Path, request_: Request) -> None:
    saved.save("mine", request_)
    assert saved.load("mine") == request_
    assert saved.names() == ["mine"]


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        (
            "selector: a=b\nremote: [80]\nfirst: 99999\n",
            "mine.yml:3: first is '99999', not a whole number from 1 to",
        ),
        ("selektor: a=b\nremote: [80]\n", "mine.yml:1: selektor is not known; did you mean selector?"),
        ("remote: [80]\n", "needs either selector or pod"),
        ("selector: a=b\nremote: [80]\n", "no first local port"),
        ("pod: a\nremote: [80]\nlocal: [1, 2]\n", "as many local as remote"),
        ("pod: a\n", "no remote ports"),
    ],
)
def test_a_file_with_a_mistake_is_refused_with_its_line(folder: Path, text: str, wrong: str) -> None:
    folder.mkdir()
    (folder / "mine.yml").write_text(text)
    with pytest.raises(InvalidInput) as caught:
        saved.load("mine")
    assert wrong in str(caught.value)


def test_a_name_cannot_lead_out_of_the_folder(folder: Path) -> None:
    with pytest.raises(InvalidInput):
        saved.path("../settings")


LINE = Line(Slot(((8081, 8080),), "web-0", "u"), State.RETRYING, until=4.0, why="lost connection")


def test_the_table_shows_the_reason_and_the_next_retry() -> None:
    text = "\n".join(drawn([LINE], 1.0, 120, 40))
    assert "127.0.0.1:8081  web-0  8080  retrying  retry in 3 s: lost connection" in text
    assert as_line(LINE) == "127.0.0.1:8081 -> web-0:8080: retrying (lost connection)"


def test_the_table_fits_the_screen_and_counts_the_rest() -> None:
    shown = drawn([LINE] * 30, 1.0, 40, 10)
    assert len(shown) == 8
    assert shown[-1] == "… 24 more"
    assert fit([str(n) for n in range(30)], 80, 10)[-1] == "… 22 more lines"


def test_every_reference_of_a_pod_to_a_secret_is_listed() -> None:
    env = [
        {"name": "A", "valueFrom": {"secretKeyRef": {"name": "one", "key": "k"}}},
        {"name": "API_TOKEN", "value": "t0ken"},
        {"name": "MODE", "value": "fast"},
        {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
    ]
    spec = {
        "containers": [{"name": "c", "env": env}],
        "initContainers": [
            {"name": "i", "envFrom": [{"secretRef": {"name": "two"}}, {"configMapRef": {"name": "no"}}]}
        ],
        "volumes": [
            {"name": "v", "secret": {"secretName": "three"}},
            {"name": "w", "projected": {"sources": [{"secret": {"name": "four"}}, {"serviceAccountToken": {}}]}},
        ],
        "imagePullSecrets": [{"name": "five"}],
    }
    assert secrets_of({"spec": spec}) == ["five", "four", "one", "three", "two"]
    assert literals({"spec": spec}) == ["t0ken"]
    debug = {"ephemeralContainers": [{"name": "d", "env": [*env, {"name": "DB_PASSWORD", "value": "tiger"}]}]}
    assert (secrets_of({"spec": debug}), literals({"spec": debug})) == (["one"], ["t0ken", "tiger"])


def test_a_pane_in_a_deleted_folder_has_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, monkeypatch, "tmux", f'echo "{tmp_path}/$PLACE"')
    monkeypatch.setenv("TMUX", "x")
    monkeypatch.setenv("GPUCTL_PANE", "%1")
    assert folder_of_pane() == f"{tmp_path}/"
    monkeypatch.setenv("PLACE", "gone")
    assert folder_of_pane() is None


def test_a_program_with_unreadable_output_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, monkeypatch, "slow", "exec sleep 30")
    assert kubectl.output_of(["slow"], limit=0.2) is None
    assert kubectl.output_of(["slow"], str(tmp_path / "gone")) is None


def program(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, does: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{does}\n")
    (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def test_a_secret_is_searched_as_text_and_as_base64() -> None:
    assert decoded({"a": "dGlnZXI=", "b": "/////w=="}) == ["dGlnZXI=", "tiger", "/////w=="]
    login = base64.b64encode(b'{"auths": {"nvcr.io": {"auth": "cm9ib3Q6eA==", "password": "nv-pw"}}}').decode()
    assert decoded({"a": login})[2:] == ["cm9ib3Q6eA==", "x", "nv-pw"]


def test_passwords_of_urls_and_random_values_of_variables_are_secrets_and_switches_are_none() -> None:
    values = {
        "DATABASE_URL": "postgres://app:p%40ss-w@db/x",
        "SETTING": "Zk3vQ9xT7bLm2NcR5",
        "MODEL": "meta-llama/Llama-3-70B-Instruct",
        "USE_AUTH_TOKEN": "true",
        "NCCL_DEBUG": "INFO",
    }
    env = [{"name": name, "value": value} for name, value in values.items()]
    spec = {"containers": [{"name": "c", "env": env}]}
    assert literals({"spec": spec}) == ["Zk3vQ9xT7bLm2NcR5", "p@ss-w"]
