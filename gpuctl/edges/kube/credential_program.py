"""Run the credential program of a kubeconfig (`exec` of a user) and read its answer, an ExecCredential.

As the library's ExecProvider, with three differences: its output is bounded; it has no input and a time limit unless a
terminal is there to answer its questions; and it fails with its message on a terminal, too.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from gpuctl.edges.processes import Processes

MOST_OUTPUT = 1 << 20  # a credential has a few KiB
LIMIT_S = 300.0
EXTENSION = "client.authentication.k8s.io/exec"


class ProgramFailed(Exception):
    """The program printed no credential; the text says why."""


def credential(program: Mapping[str, Any], cluster: Mapping[str, Any], folder: str) -> dict[str, Any]:
    """The `status` of the credential that a program prints. OSError if it cannot be started.

    `program`, `cluster`: as in the kubeconfig; `folder`: where it works, that of the kubeconfig.
    """
    missing = [key for key in ("command", "apiVersion") if key not in program]
    if missing:
        raise ProgramFailed(f"malformed request: missing key '{missing[0]}'")
    argv = [str(word) for word in (program["command"], *(program.get("args") or []))]
    interactive = all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr))
    request: dict[str, Any] = {"interactive": interactive}
    if program.get("provideClusterInfo"):
        request["cluster"] = _described(cluster)
    version = program["apiVersion"]
    document = {"apiVersion": version, "kind": "ExecCredential", "spec": request}
    variables = {str(item.get("name")): str(item.get("value")) for item in program.get("env") or []}
    environment = {**os.environ, **variables, "KUBERNETES_EXEC_INFO": json.dumps(document)}
    run = _on_terminal if interactive else _alone
    return _status(run(argv, environment, folder), str(version))


def _described(cluster: Mapping[str, Any]) -> dict[str, Any]:
    extensions = cluster.get("extensions") or []
    configs = [extension["extension"] for extension in extensions if extension.get("name") == EXTENSION]
    return {**cluster, "config": configs[0]} if configs else dict(cluster)


def _on_terminal(argv: list[str], environment: Mapping[str, str], folder: str) -> bytes:
    """The output of a program that may ask questions on the terminal, and prints its messages there."""
    with subprocess.Popen(argv, stdout=subprocess.PIPE, env=environment, cwd=folder) as process:
        assert process.stdout is not None  # noqa: S101 - for mypy: a pipe was requested
        output = process.stdout.read(MOST_OUTPUT + 1)
        if len(output) > MOST_OUTPUT:
            process.kill()
            raise ProgramFailed(f"it prints more than {MOST_OUTPUT >> 20} MiB")
    if process.returncode:
        raise ProgramFailed(f"exit code {process.returncode}: its message is above")
    return output


def _alone(argv: list[str], environment: Mapping[str, str], folder: str) -> bytes:
    """The output of a program without a terminal."""
    done = Processes(MOST_OUTPUT, new_session=False).run(argv, b"", LIMIT_S, environment, folder)
    if done.excess:
        raise ProgramFailed(f"it prints more than {MOST_OUTPUT >> 20} MiB")
    if done.code is None:
        raise ProgramFailed(f"it did not end within {LIMIT_S:.0f} s")
    if done.code:
        raise ProgramFailed(f"exit code {done.code}: {done.err.strip() or 'it printed no message'}")
    return done.out


def _status(output: bytes, version: str) -> dict[str, Any]:
    try:
        document = json.loads(output)
    except (ValueError, RecursionError) as error:
        raise ProgramFailed(f"failed to decode process output: {error}") from error
    missing = (
        next((key for key in ("apiVersion", "kind", "status") if key not in document), None)
        if isinstance(document, dict)
        else "status"
    )
    if missing:
        raise ProgramFailed(f"malformed response: missing key '{missing}'")
    if document["apiVersion"] != version:
        raise ProgramFailed(f"its API version {document['apiVersion']} does not match {version}")
    status = document["status"]
    if not isinstance(status, dict) or not all(isinstance(value, str) for value in status.values()):
        raise ProgramFailed("malformed response: its status is no credential")
    return status
