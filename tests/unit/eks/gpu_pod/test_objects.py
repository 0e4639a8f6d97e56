"""Objects of a GPU pod, and the values that they are made from."""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from gpuctl.core.errors import InvalidInput
from gpuctl.eks.gpu_pod import model, objects, scripts
from gpuctl.eks.gpu_pod.model import Form, Options

FORM = Form("registry/ml:1", gpus=2)


def containers(pod: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield from (*pod["spec"]["initContainers"], *pod["spec"]["containers"])


@pytest.mark.parametrize("root", [False, True])
def test_every_container_requests_its_limits(root: bool) -> None:
    pod = objects.pod("gpu", Form("a", root=root), "gpu-host-1", "ssh-ed25519 AAAA")
    for container in containers(pod):
        assert container["resources"]["requests"] == container["resources"]["limits"]
        assert {"cpu", "memory"} <= container["resources"]["limits"].keys()


def test_root_is_only_who_asked() -> None:
    ordinary = objects.pod("gpu", FORM, "s", "k")
    assert ordinary["spec"]["securityContext"]["runAsNonRoot"] is True
    assert all(one["securityContext"]["capabilities"] == {"drop": ["ALL"]} for one in containers(ordinary))
    root = objects.pod("gpu", Form("a", root=True), "s", "k")
    assert root["spec"]["securityContext"]["runAsUser"] == 0


def test_no_private_key_stands_outside_of_the_secret() -> None:
    secret = objects.host("gpu", "1", "PRIVATE")
    rest = json.dumps([objects.pod("gpu", FORM, secret["metadata"]["name"], "public"), objects.start("gpu", FORM)])
    assert "PRIVATE" not in rest
    assert set(secret["data"]) == {"host"}


def test_the_form_is_read_back_from_the_pod() -> None:
    pod = objects.pod("gpu", FORM, "s", "k")
    assert model.read_form(pod["metadata"]["annotations"]) == FORM
    assert model.read_form({}) is None
    assert model.read_form({model.FORM: "[]"}) is None
    assert model.read_form({model.FORM: '{"gpus": 1}'}) is None


def test_a_pod_is_made_again_with_its_values_and_the_options() -> None:
    assert model.form_of(Options(gpus=4), FORM, "make it") == Form("registry/ml:1", gpus=4)
    with pytest.raises(InvalidInput, match="no image is named"):
        model.form_of(Options(gpus=4), None, "make it")


def test_only_options_that_were_used_can_differ() -> None:
    assert model.differences(Options(), FORM) == []
    assert model.differences(Options(gpus=1, image="registry/ml:1", workspace="9Ti"), FORM) == ["gpus: 2, not 1"]


def test_all_wrong_values_are_named_at_once() -> None:
    with pytest.raises(InvalidInput, match=r"--cpu '0'.*--shm '64MB'.*--image"):
        model.check_options(Options(cpu="0", shm="64MB", memory="1.5Gi", image="a b"))


@pytest.mark.parametrize(
    ("now", "more"),
    [
        (FORM, False),
        (Form("other", gpus=1, cpu="2500m", memory="12288Mi"), False),
        (Form("a", gpus=3), True),
        (Form("a", cpu="3001m"), True),
        (Form("a", memory="13G"), True),
    ],
)
def test_what_demands_more_of_a_quota(now: Form, more: bool) -> None:
    assert model.demands_more(now, FORM) is more


def probe(port: int) -> int:
    return subprocess.run(["sh", "-c", scripts.listens(port)], check=False).returncode


def test_the_pod_is_ready_once_its_port_listens() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port = server.getsockname()[1]
        assert probe(port) == 1
        server.listen()
        assert probe(port) == 0
    assert probe(port) == 1


@pytest.mark.parametrize("name", ["", "A", "9a", "a_b", "a-", "a" * 41, "a/b", "--help"])
def test_names_that_kubernetes_has_not_are_refused(name: str) -> None:
    with pytest.raises(InvalidInput):
        model.check_name(name)


def test_sshd_takes_keys_only_and_listens_for_the_forward_alone() -> None:
    lines = scripts.sshd_config().splitlines()
    assert "PasswordAuthentication no" in lines
    assert [line for line in lines if line.startswith("ListenAddress")] == ["ListenAddress 127.0.0.1:2222"]
    exposed = scripts.sshd_config(exposed=True).splitlines()
    assert set(exposed) - set(lines) == {"ListenAddress 0.0.0.0:2223"}
