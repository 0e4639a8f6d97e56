"""Files from an address: those of the host, and the reason of apt's downloader where it fails."""

from __future__ import annotations

from pathlib import Path

from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost import download
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.host import Host

from tests.rig.trees.host import put

# As apt-helper of Debian 12 printed it.
FAILED = """#!/bin/sh
echo 'Err:1 http://m/x'
echo '  404  File not found [IP: 127.0.0.1 80]'
echo 'E: Failed to fetch http://m/x  404  File not found [IP: 127.0.0.1 80]' >&2
echo 'E: Download Failed' >&2
exit 100
"""


def test_a_file_of_the_host_is_copied_or_its_error_said(tmp_path: Path) -> None:
    put(tmp_path, "/mirror/x", "text")
    target = tmp_path / "got"
    assert download.download(Host(tmp_path), "file:///mirror/x", str(target)) == ""
    assert target.read_text() == "text"
    assert download.download(Host(tmp_path), "file:/mirror/y", str(target)) == "/mirror/y: No such file or directory"


def test_a_server_that_does_not_have_it_is_quoted(tmp_path: Path) -> None:
    put(tmp_path, download.HELPER, FAILED, 0o755)
    wrong = download.download(Host(tmp_path), "http://m/x", str(tmp_path / "got"))
    assert wrong == "http://m/x: 404  File not found [IP: 127.0.0.1 80]"
