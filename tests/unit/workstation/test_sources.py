"""What pip and npm are given holds the hash of everything they may take."""

from __future__ import annotations

from typing import Any

from ansible_collections.gpuctl.fleet.plugins.module_utils.workstation.sources import lock, requirements

ROW: dict[str, Any] = {
    "name": "claude",
    "npm": {
        "package": "@a/tool",
        "version": "2.0",
        "program": "bin/tool",
        "integrity": "sha512-main",
        "systems": {"@a/tool-linux": {"os": "linux", "cpu": "x64", "integrity": "sha512-linux"}},
    },
}


def test_each_requirement_has_a_version_and_hashes() -> None:
    hashes = {"nvitop==1.0": ["aa"], "psutil==2.0": ["bb", "cc"]}
    assert requirements(hashes) == "nvitop==1.0 --hash=sha256:aa\npsutil==2.0 --hash=sha256:bb --hash=sha256:cc\n"


def test_the_lock_for_npm_has_the_integrity_of_the_package_and_of_each_systems_program() -> None:
    packages = lock(ROW)["package-lock.json"]["packages"]
    main, program = packages["node_modules/@a/tool"], packages["node_modules/@a/tool-linux"]
    assert (main["integrity"], program["integrity"]) == ("sha512-main", "sha512-linux")
    assert main["optionalDependencies"] == {"@a/tool-linux": "2.0"}
    assert main["bin"] == {"claude": "bin/tool"}
    assert (program["os"], program["cpu"], program["optional"]) == (["linux"], ["x64"], True)


def test_the_lock_and_the_package_file_ask_for_the_same() -> None:
    made = lock(ROW)
    assert made["package.json"]["dependencies"] == {"@a/tool": "2.0"}
    assert made["package-lock.json"]["packages"][""] == made["package.json"]
