"""Secrets of a pod are found in its Secrets and variables."""

from __future__ import annotations

import base64
import json

import pytest

from gpuctl.kube.pod_secrets import decoded, inside, literals, secrets_of


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@pytest.mark.timeout(5)
def test_a_long_value_takes_no_time() -> None:
    assert inside("a" * 200_000) == []
    assert inside("postgres://app:hunter2x@db/x") == ["hunter2x"]


def test_a_certificate_is_no_secret_and_the_key_beside_it_is() -> None:
    certificate = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
    assert decoded({"ca.crt": b64(certificate)}) == []
    values = decoded({"tls.pem": b64(certificate + "hunter2x")})
    assert "hunter2x" in values
    assert not any("MIIB" in value for value in values)


def test_the_password_of_a_docker_login_is_a_secret() -> None:
    login = json.dumps({"auths": {"r.example.org": {"auth": b64("bob:hunter2x")}}})
    assert {"hunter2x", b64("bob:hunter2x")} <= set(decoded({".dockerconfigjson": b64(login)}))


@pytest.mark.parametrize(
    "text",
    [
        "A=1\nexport DB_PASSWORD='hunter2x' # x\n",
        "a: 1\nb:\n  token: hunter2x\n",
        "[db]\npassword = hunter2x\nport = 1",
    ],
)
def test_lines_of_a_value_with_a_secret_name_hold_secrets(text: str) -> None:
    assert inside(text) == ["hunter2x"]


def test_secrets_of_volumes_are_known() -> None:
    volumes = [
        {"name": "a", "csi": {"driver": "x", "nodePublishSecretRef": {"name": "csi"}}},
        {"name": "b", "azureFile": {"secretName": "azure"}},
        *(
            {"name": kind, kind: {"secretRef": {"name": kind.lower()}}}
            for kind in ("cephfs", "rbd", "iscsi", "flexVolume")
        ),
    ]
    assert secrets_of({"spec": {"volumes": volumes}}) == ["azure", "cephfs", "csi", "flexvolume", "iscsi", "rbd"]


def test_names_files_counts_and_commits_are_no_secrets() -> None:
    values = {
        "SECRET_NAME": "db-login",
        "TOKEN_FILE": "my-token.txt",
        "PASSWORD_PATH": "etc/password",
        "MAX_TOKENS": "many-of-them",
        "GIT_COMMIT": "0123456789abcdef0123456789abcdef01234567",
        "WANDB_API_KEY": "abcdef0123456789abcdef0123456789abcdef01",
    }
    env = [{"name": name, "value": value} for name, value in values.items()]
    assert literals({"spec": {"containers": [{"env": env}]}}) == [values["WANDB_API_KEY"]]
