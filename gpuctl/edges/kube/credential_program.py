"""Run the credential program of a kubeconfig (`exec` of a user) and read its answer, an ExecCredential.

As the library's ExecProvider, with three differences: its output is bounded; it has no input and a time limit unless a
terminal is there to answer its questions; and it fails with its message on a terminal, too.
"""

from __future__ import annotations

import json
import math
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Mapping
from datetime import date
from typing import Any

from gpuctl.edges.processes import CHUNK, Processes

MOST_OUTPUT = 1 << 20  # a credential has a few KiB
LIMIT_S = 300.0
GRACE_S = 1.0  # for which what a program started may hold its output after its end
POLL_S = 0.05
EXTENSION = "client.authentication.k8s.io/exec"


class ProgramFailed(Exception):
    """The program printed no credential; the text says why."""


def arguments(program: Mapping[str, Any]) -> list[str]:
    """The arguments of a credential program; ValueError if they are malformed."""
    words = program.get("args") or []
    if not isinstance(words, list):
        raise ValueError(f"args of the credential program {program.get('command')} is no list")
    return [str(word) for word in words]


def variables(program: Mapping[str, Any]) -> dict[str, str]:
    """The variables that a kubeconfig sets for a credential program; ValueError if they are malformed."""
    items = program.get("env") or []
    if not isinstance(items, list) or not all(isinstance(item, dict) and "name" in item for item in items):
        raise ValueError(f"env of the credential program {program.get('command')} is no list of names and values")
    return {str(item["name"]): str(item.get("value")) for item in items}


def credential(program: Mapping[str, Any], cluster: Mapping[str, Any], folder: str) -> dict[str, str]:
    """The `status` of the credential that a program prints. OSError if it cannot be started, ValueError if malformed.

    `program`, `cluster`: as in the kubeconfig; `folder`: where it works, that of the kubeconfig.
    """
    missing = [key for key in ("command", "apiVersion") if key not in program]
    if missing:
        raise ProgramFailed(f"malformed request: missing key '{missing[0]}'")
    argv = [str(program["command"]), *arguments(program)]
    interactive = all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr))
    request: dict[str, Any] = {"interactive": interactive}
    if program.get("provideClusterInfo"):
        request["cluster"] = _described(cluster)
    version = program["apiVersion"]
    document = {"apiVersion": version, "kind": "ExecCredential", "spec": request}
    try:
        info = json.dumps(document, default=_as_json)
    except TypeError as error:
        raise ValueError(f"the cluster of the credential program {argv[0]} cannot be passed to it: {error}") from error
    environment = {**os.environ, **variables(program), "KUBERNETES_EXEC_INFO": info}
    run = _on_terminal if interactive else _alone
    return _status(run(argv, environment, folder), str(version))


def _as_json(value: object) -> str:
    """A timestamp as text, as which kubectl passes it."""
    if isinstance(value, date):
        return value.isoformat().replace("+00:00", "Z")
    raise TypeError(f"it has a {type(value).__name__}, which JSON lacks")


def _described(cluster: Mapping[str, Any]) -> dict[str, Any]:
    extensions = cluster.get("extensions") or []
    if not isinstance(extensions, list) or not all(isinstance(one, dict) for one in extensions):
        raise ValueError("extensions of the cluster is no list of names and extensions")
    configs = [extension for extension in extensions if extension.get("name") == EXTENSION]
    if any("extension" not in extension for extension in configs):
        raise ValueError(f"the extension {EXTENSION} of the cluster has no key 'extension'")
    return {**cluster, "config": configs[0]["extension"]} if configs else dict(cluster)


def _on_terminal(argv: list[str], environment: Mapping[str, str], folder: str) -> bytes:
    """The output of a program that may ask questions on the terminal, and prints its messages there."""
    with subprocess.Popen(argv, stdout=subprocess.PIPE, env=environment, cwd=folder) as process:
        output = _output_of(process)
        if len(output) > MOST_OUTPUT:
            process.kill()
            raise ProgramFailed(f"it prints more than {MOST_OUTPUT >> 20} MiB")
    if process.returncode:
        raise ProgramFailed(f"exit code {process.returncode}: its message is above")
    return output


def _output_of(process: subprocess.Popen[bytes]) -> bytes:
    """What a program prints until its end and for GRACE_S after it, or a little more than MOST_OUTPUT."""
    output, last = bytearray(), math.inf
    with selectors.DefaultSelector() as selector:
        assert process.stdout is not None  # noqa: S101 - for mypy: a pipe was requested
        selector.register(process.stdout, selectors.EVENT_READ)
        while len(output) <= MOST_OUTPUT and time.monotonic() < last:
            if selector.select(POLL_S):
                part = os.read(process.stdout.fileno(), CHUNK)
                if not part:
                    break
                output += part
            if process.poll() is not None:
                last = min(last, time.monotonic() + GRACE_S)
    return bytes(output)


def _alone(argv: list[str], environment: Mapping[str, str], folder: str) -> bytes:
    """The output of a program without a terminal; at the limit, what it started ends with it."""
    done = Processes(MOST_OUTPUT, grace=GRACE_S).run(argv, b"", LIMIT_S, environment, folder)
    if done.excess:
        raise ProgramFailed(f"it prints more than {MOST_OUTPUT >> 20} MiB")
    if done.code is None:
        raise ProgramFailed(f"it did not end within {LIMIT_S:.0f} s")
    if done.code:
        raise ProgramFailed(f"exit code {done.code}: {done.err.strip() or 'it printed no message'}")
    return done.out


def _status(output: bytes, version: str) -> dict[str, str]:
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
    values = [value for value in status.values() if value is not None] if isinstance(status, dict) else [status]
    if not isinstance(status, dict) or not all(isinstance(value, str) for value in values):
        raise ProgramFailed("malformed response: its status is no credential")
    return {key: value for key, value in status.items() if value is not None}
