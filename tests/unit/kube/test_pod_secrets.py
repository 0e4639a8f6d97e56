"""Secrets of a pod are found in its Secrets and variables."""

from __future__ import annotations

import base64

import pytest

from gpuctl.kube.pod_secrets import decoded, inside


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
