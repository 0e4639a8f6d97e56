"""Pins come out of the checksum files that makers publish, whatever their form."""

from __future__ import annotations

import pytest

from gpuctl.core.errors import InvalidInput
from gpuctl.workstation.pins import pins, require_valid, shows_version

K9S = {"url": "https://h/v{version}/k9s_{os}_{arch}.tar.gz", "os": {"linux": "Linux", "darwin": "Darwin"}}
A, B = "a" * 64, "b" * 64


def test_a_checksum_list_gives_the_known_systems() -> None:
    text = f"{A}  k9s_Linux_amd64.tar.gz\n{B} *k9s_Darwin_arm64.tar.gz\n{B}  k9s_Windows_amd64.zip\n"
    assert pins(K9S, "1.0", text) == {"linux/amd64": A, "darwin/arm64": B}


def test_a_bare_hash_is_for_the_named_system() -> None:
    assert pins({"url": "https://h/kubectl"}, "1.0", f"{A}\n", "linux/arm64") == {"linux/arm64": A}
    assert pins({"url": "https://h/kubectl"}, "1.0", f"{A}\n") == {}


def test_other_text_gives_no_pins() -> None:
    assert pins(K9S, "1.0", "<html>not found</html>\nabc  k9s_Linux_amd64.tar.gz\n") == {}


def test_a_malformed_version_or_system_is_refused() -> None:
    for version, system in (("latest", ""), ("1.0/../2", ""), ("1.0", "linux/amd46"), ("v1.0", "")):
        with pytest.raises(InvalidInput):
            require_valid(K9S, version, system)
    require_valid(K9S, "0.50.18", "linux/amd64")


def test_shows_version_is_true_for_file_names_with_a_version() -> None:
    assert not shows_version(K9S, "")
    assert shows_version({"url": "https://h/fzf-{version}-{os}_{arch}.tar.gz"}, "")
