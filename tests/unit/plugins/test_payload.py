"""The engine as one streamed program: it runs in any Python, and its answer is found in other output."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import MAGIC_NUMBER
from pathlib import Path

import pytest
from ansible_collections.gpuctl.fleet.plugins.plugin_utils.answers import find
from ansible_collections.gpuctl.fleet.plugins.plugin_utils.payload import CHANGE, any_python, python_arguments, script

TOKEN = "gpuctl-0123456789abcdef "  # noqa: S105


def test_the_program_runs_from_standard_input_in_an_empty_python() -> None:
    program = script(json.dumps({"action": "facts"}), TOKEN)
    done = subprocess.run([sys.executable, "-I", "-S", "-"], input=program, capture_output=True, check=True)
    answer = find(done.stdout, TOKEN, {"action": "facts"})
    assert answer["machine"]["machine"] in ("metal", "virtual", "container", "unknown")


def test_a_python_of_another_version_runs_the_sources() -> None:
    program = script(json.dumps({"action": "facts"}), TOKEN)
    other = program.replace(MAGIC_NUMBER.hex().encode(), b"00000000", 1)
    assert other != program
    done = subprocess.run([sys.executable, "-I", "-S", "-"], input=other, capture_output=True, check=True)
    assert "machine" in find(done.stdout, TOKEN, {"action": "facts"})


@pytest.mark.parametrize(("more", "visits"), [(CHANGE, [True, False]), (b"", [True]), (b"stop\n", [True])])
def test_a_program_that_stays_changes_the_host_only_when_it_is_told(more: bytes, visits: list[bool]) -> None:
    """Each visit is replaced by its request, so that its check mode is seen."""
    program = script(json.dumps({"action": "facts", "check": True}), TOKEN, stays=True)
    shown = program.replace(b"import visit\n", b"import visit as real\ndef visit(request): return request\n")
    length, _, text = shown.partition(b"\n")
    shown = b"%d\n%s" % (int(length) + len(shown) - len(program), text)
    argv = [sys.executable, *python_arguments(stays=True)]
    done = subprocess.run(argv, input=shown + more, capture_output=True, check=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith(TOKEN.encode())]
    assert [json.loads(line[len(TOKEN) :])["check"] for line in lines] == visits


# Modules that take a host as long to load as many of the engine's own, and that few visits need.
SLOW_MODULES = {"dataclasses", "inspect", "subprocess", "hashlib", "difflib", "gpuhost.facts.gather"}
# What changes a host is not loaded by a visit that only reads.
OF_CHANGES = {"gpuhost.changes", "gpuhost.kinds.cpu"}


def test_no_slow_module_is_loaded_before_it_is_needed() -> None:
    loaded = loaded_modules({"action": "facts"})
    assert "gpuhost.api" in loaded
    assert loaded & (SLOW_MODULES | OF_CHANGES) == set()


def test_an_audit_loads_no_hashes() -> None:
    loaded = loaded_modules({"action": "facts", "subjects": "audit", "only": []})
    assert "gpuhost.facts.health" in loaded
    assert "hashlib" not in loaded


def loaded_modules(request: dict[str, object]) -> set[str]:
    """Names of the modules that a visit loads."""
    argv = [sys.executable, "-X", "importtime", "-I", "-S", "-"]
    program = script(json.dumps(request), TOKEN)
    done = subprocess.run(argv, input=program, capture_output=True, check=True)
    return {line.rpartition("|")[2].strip() for line in done.stderr.decode().splitlines()}


PYTHONS = {
    "RHEL 8": ({"python3.6": "", "python3": "python3.6", "python3.11": ""}, "python3.11"),
    "Ubuntu 20.04": ({"python3.8": "", "python3": "python3.8", "python3.9": ""}, "python3.9"),
    "Debian 12": ({"python3.11": "", "python3": "python3.11", "python3.13": ""}, "python3"),
    "built by its users": ({"python3": ""}, "python3"),
    "an old one alone, which says so": ({"python3.6": "", "python3": "python3.6"}, "python3"),
}


@pytest.mark.parametrize(("installed", "chosen"), PYTHONS.values(), ids=PYTHONS)
def test_a_python_that_is_too_old_is_passed_over(tmp_path: Path, installed: dict[str, str], chosen: str) -> None:
    """The names are as the distributions link them: python3 to a name with a version, or by way of alternatives."""
    for name, target in installed.items():
        if target:
            (tmp_path / "alternatives").symlink_to(tmp_path / target)
            (tmp_path / name).symlink_to("alternatives")
        else:
            (tmp_path / name).write_text('#!/bin/sh\necho "$0 $*"\n')
            (tmp_path / name).chmod(0o755)
    (tmp_path / "readlink").symlink_to("/usr/bin/readlink")
    environment = {**os.environ, "PATH": str(tmp_path)}
    done = subprocess.run(["/bin/sh", "-c", any_python()], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == f"{tmp_path}/{chosen} -IS -\n"
