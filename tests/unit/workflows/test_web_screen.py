"""The address at which a screen is served: loopback alone, unless other machines may reach it."""

from __future__ import annotations

import pytest

from gpuctl.core.errors import InvalidInput
from gpuctl.workflows.web_screen import address


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [("127.0.0.1:8080", "127.0.0.1", 8080), ("localhost:0", "127.0.0.1", 0), ("[::1]:443", "[::1]", 443)],
)
def test_loopback_addresses(text: str, host: str, port: int) -> None:
    at = address(text, allow_remote=False)
    assert (at.host, at.port) == (host, port)


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("8080", "not an address and port"),
        ("127.0.0.1", "not an address and port"),
        ("gpu-1:8080", "not an address and port"),
        ("127.0.0.1:http", "not an address and port"),
        ("127.0.0.1:70000", "70000 is not a port"),
        ("0.0.0.0:8080", "other machines reach"),
        ("[::]:8080", "other machines reach"),
        ("10.0.0.7:8080", "other machines reach"),
    ],
)
def test_other_addresses_are_refused(text: str, wrong: str) -> None:
    with pytest.raises(InvalidInput, match=wrong):
        address(text, allow_remote=False)


def test_a_remote_address_can_be_allowed() -> None:
    assert address("10.0.0.7:8080", allow_remote=True).host == "10.0.0.7"
