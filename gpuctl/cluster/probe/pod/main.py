"""Answer one probe request in one message; or hold a port until the input ends."""

from __future__ import annotations

import os
import select
import sys
import traceback
from pathlib import Path
from typing import Any

from gpuctl.cluster.probe.pod import container, network
from gpuctl.cluster.probe.pod.run_programs import run_programs
from gpuctl.remote.supervisor import protocol
from gpuctl.remote.supervisor.process import read_env_file
from gpuctl.remote.supervisor.protocol import Reader, Writer

HOLD, FACTS = "hold", "facts"
SSH = ["ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=5"]


def hold(order: dict[str, Any], reader: Reader, writer: Writer) -> None:
    """Listen on a port and report whether that was possible."""
    listener = network.listen(order["port"])
    if isinstance(listener, str):
        writer.send(protocol.ANSWER, {"wrong": listener})
        return
    writer.send(protocol.ANSWER, {"wrong": ""})
    while not reader.should_end():
        writer.flush()
        writer.heartbeat()
        if listener.fileno() in select.select([reader.source, listener.fileno()], [], [], 0.2)[0]:
            network.greet(listener)
    listener.close()


def _heartbeat(writer: Writer) -> None:
    writer.heartbeat()
    writer.flush()


def facts(order: dict[str, Any], _: Reader, writer: Writer) -> None:
    """Collect all facts; everything slow has a time limit."""
    commands = {f"ssh {host}": [*SSH, host, "true"] for host in order["ssh"]}
    commands["gpus"] = ["nvidia-smi", "-L"]
    if order["whole"]:
        commands["details"] = ["nvidia-smi", "-q", "-x"]
    answers = run_programs(commands, order["ask_s"], lambda: _heartbeat(writer))
    answer: dict[str, Any] = {
        "answers": answers,
        "script": container.script(order["script"]) if order["script"] else None,
        "hostfile": container.text(order["hostfile"]),
        "programs": container.programs(order["programs"]),
        "devices": container.devices(),
        "shm": container.shared_memory(),
        "memlock": container.memlock(),
        "workspace": container.folder(order["workspace"]),
        "trainings": container.trainings(order["runs"]),
        "names": network.names(order["hosts"], order["limit_s"]),
        "pod_env": read_env_file(Path(order["env_file"])),
        "ds_env": [container.text(str(Path(path).expanduser())).get("text", "") for path in order["ds_env"]],
    }
    launcher = answer["programs"].get("deepspeed")
    answer["no_ssh"] = container.no_ssh(launcher) if launcher else None
    answer["reached"] = _check_port(order, answer["names"]) if order["reach"] else None
    writer.send(protocol.ANSWER, answer)


def _check_port(order: dict[str, Any], names: dict[str, Any]) -> str:
    host, port = order["reach"]
    if isinstance(names.get(host), str):
        return "it has no address"
    return network.reach(host, port, order["limit_s"])


def main() -> None:
    """Carry out one order. A resolver thread that hangs ends with this process."""
    reader, writer, code = Reader(), Writer(), 0
    try:
        order = reader.order()
        {HOLD: hold, FACTS: facts}[order["what"]](order, reader.nonblocking(), writer)
    except EOFError:
        code = 0
    except protocol.Gone:
        code = 0
    except Exception:  # noqa: BLE001 - the last word of a program that runs elsewhere
        traceback.print_exc()
        code = 1
    writer.finish()
    sys.stderr.flush()
    os._exit(code)
