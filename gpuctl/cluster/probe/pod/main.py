"""Answers what a pod is asked of itself, in one message; or holds a port until its input ends."""

from __future__ import annotations

import os
import select
import sys
import traceback
from pathlib import Path
from typing import Any

from gpuctl.cluster.probe.pod import container, network
from gpuctl.cluster.probe.pod.run_programs import ask
from gpuctl.remote.supervisor import protocol
from gpuctl.remote.supervisor.process import said
from gpuctl.remote.supervisor.protocol import Ear, Voice

HOLD, FACTS = "hold", "facts"
SSH = ["ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=5"]


def hold(order: dict[str, Any], ear: Ear, voice: Voice) -> None:
    """Listen on a port; say whether that was possible."""
    found = network.listen(order["port"])
    if isinstance(found, str):
        voice.say(protocol.ANSWER, {"wrong": found})
        return
    voice.say(protocol.ANSWER, {"wrong": ""})
    while not ear.told_to_end():
        voice.pass_on()
        voice.beat()
        if found.fileno() in select.select([ear.source, found.fileno()], [], [], 0.2)[0]:
            network.greet(found)
    found.close()


def _say_that_we_are_at_work(voice: Voice) -> None:
    voice.beat()
    voice.pass_on()


def facts(order: dict[str, Any], _: Ear, voice: Voice) -> None:
    """Everything at once; what takes time has its limits."""
    asked = {f"ssh {host}": [*SSH, host, "true"] for host in order["ssh"]}
    asked["gpus"] = ["nvidia-smi", "-L"]
    if order["whole"]:
        asked["details"] = ["nvidia-smi", "-q", "-x"]
    answers = ask(asked, order["ask_s"], lambda: _say_that_we_are_at_work(voice))
    found: dict[str, Any] = {
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
        "says": said(Path(order["says"])),
        "ds_env": [container.text(str(Path(path).expanduser())).get("text", "") for path in order["ds_env"]],
    }
    launcher = found["programs"].get("deepspeed")
    found["no_ssh"] = container.no_ssh(launcher) if launcher else None
    found["reached"] = _reached(order, found["names"]) if order["reach"] else None
    voice.say(protocol.ANSWER, found)


def _reached(order: dict[str, Any], names: dict[str, Any]) -> str:
    host, port = order["reach"]
    if isinstance(names.get(host), str):
        return "it has no address"
    return network.reach(host, port, order["limit_s"])


def main() -> None:
    """One order, and its answer. What is left behind, such as a resolver that does not answer, ends with us."""
    ear, voice, code = Ear(), Voice(), 0
    try:
        order = ear.order()
        {HOLD: hold, FACTS: facts}[order["what"]](order, ear.quietly(), voice)
    except EOFError:
        code = 0
    except protocol.Gone:
        code = 0
    except Exception:  # noqa: BLE001 - the last word of a program that runs elsewhere
        traceback.print_exc()
        code = 1
    voice.finish()
    sys.stderr.flush()
    os._exit(code)
