"""One visit to a host. Request and answer are the same for every carrier: Ansible, ssh, a recorded folder."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from . import record as records
from .facts import machine
from .host import Host
from .lock import Locked
from .model import InvalidRequest

FORM = 1


def visit(request: Mapping[str, Any], host: Host | None = None) -> dict[str, Any]:
    """Carry out a request and return the answer as plain values.

    Request: `action` (a name in `ACTIONS`), `check` (change nothing), `actor` (user and machine), and
    for tune: `profile` (compiled), `scope`, `allow_busy`; for undo: `scope`, `to`, `only`, `force`, `allow_busy`;
    for facts: `subjects` ("nccl", "audit", "audit and outputs", "stack", "storage load" or "transaction") and the keys
    of its module below facts/; for act: `act`, `about`, `reason` (for the system's log) and the keys of its module
    below acts/.
    Answer: `error` (`wrong`, `hint`) or the result of the action; see changes.py for what tune gives.
    """
    host = host or Host()
    try:
        if not host.root and os.geteuid() != 0 and _needs_root(request):
            raise InvalidRequest("this needs root on the host", "give the host ansible_become: true, or log in as root")
        return {"form": FORM, **ACTIONS[request["action"]](host, request)}
    except InvalidRequest as error:
        return {"form": FORM, "error": {"wrong": str(error), "hint": error.hint}}
    except Locked as error:
        return {
            "form": FORM,
            "error": {"wrong": str(error), "hint": "wait for it to end, then run this again"},
        }
    except records.UnreadableRecord as error:
        return {
            "form": FORM,
            "error": {"wrong": str(error), "hint": f"look at the files in {records.FOLDER}"},
        }
    except OSError as error:  # not of a single setting, which its reading reports: the whole host is affected
        wrong = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        return {"form": FORM, "error": {"wrong": wrong, "hint": "gpuctl changes nothing that it cannot record"}}


def _facts(host: Host, request: Mapping[str, Any]) -> dict[str, Any]:
    """Facts of the machine; with `subjects` also those of an NCCL run ("nccl"), a node's
    audit ("audit"), or the GPU stack ("stack", "transaction").
    """
    answer: dict[str, Any] = {"machine": machine.read(host).as_dict()}
    # Imported when they are asked for: slow to load, and no other action needs them.
    if request.get("subjects") == "nccl":
        from .facts.gather import gather

        answer["facts"] = gather(host, request)
    elif request.get("subjects") in ("audit", "audit and outputs"):
        from .facts import health

        answer["facts"] = health.read(host, request)
    elif request.get("subjects") == "stack":
        from .facts import stack

        answer["facts"] = {"stack": stack.read(host, request)}
    elif request.get("subjects") == "transaction":
        from .facts import transaction

        answer["facts"] = {"transaction": transaction.read(host, request)}
    elif request.get("subjects") == "gpu use":
        from .facts.gather import gather_use

        answer["facts"] = gather_use(host, request)
    elif request.get("subjects") == "storage load":
        from .facts.gather import gather_storage_load

        answer["facts"] = gather_storage_load(host, request)
    return answer


def _act(host: Host, request: Mapping[str, Any]) -> dict[str, Any]:
    from . import acts

    return {"act": acts.run(host, request)}


def _needs_root(request: Mapping[str, Any]) -> bool:
    """Facts that a user cannot read are listed as unread; the system refuses some acts to those without right."""
    if request["action"] == "act":
        return request["act"] not in FOR_ANYBODY and not request.get("check")
    return request["action"] not in FOR_ANYBODY


def _diagnose(host: Host, request: Mapping[str, Any]) -> dict[str, Any]:
    """State of DCGM's diagnosis; see diagnosis.py."""
    from . import diagnosis  # only an audit needs it

    return {"diagnosis": diagnosis.visit(host, request)}


def _tune(host: Host, request: Mapping[str, Any]) -> dict[str, Any]:
    from . import changes  # slow to load: most visits ask for facts

    return changes.tune(host, request)


def _undo(host: Host, request: Mapping[str, Any]) -> dict[str, Any]:
    from . import changes

    return changes.undo(host, request)


def _repair(host: Host, request: Mapping[str, Any]) -> dict[str, Any]:
    from . import changes

    return changes.repair(host, request)


def _records(host: Host, request: Mapping[str, Any]) -> dict[str, Any]:
    from . import changes

    return changes.kept_records(host, request)


FOR_ANYBODY = ("facts", "end processes", "cancel job")
ACTIONS = {
    "tune": _tune,
    "undo": _undo,
    "repair": _repair,
    "records": _records,
    "facts": _facts,
    "act": _act,
    "diagnose": _diagnose,
}
