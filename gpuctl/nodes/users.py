"""Users of a node's GPUs: its processes by owner, with the person behind them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuctl.domain import gpu_owners
from gpuctl.domain.gpu_owners import Kind, Owner
from gpuctl.nodes.allocations import Allocations, pod_label
from gpuctl.nodes.gpu_state import is_daemon, program
from gpuctl.nodes.model import Facts, Process, User

Row = Mapping[str, Any]
Key = tuple[str, ...]
GONE = "it has ended, or is hidden there"


def users(facts: Facts, allocated: Allocations, me: frozenset[str]) -> tuple[User, ...]:
    """Users in the order of their GPUs; `me`: login names of the one who asks, besides the login on the node."""
    me |= {facts["login"]} if facts["login"] and facts["login"] != "root" else set()
    groups: dict[Key, list[tuple[Process, Owner]]] = {}
    for process in processes(facts):
        details = facts["processes"].get(str(process.pid))
        owner = _owner(facts, details)
        groups.setdefault(_key(owner, details), []).append((process, owner))
    rows = [_user(facts, allocated, group, me) for group in groups.values()]
    return tuple(sorted(rows, key=lambda user: (user.daemon, user.gpus, user.who)))


def processes(facts: Facts) -> list[Process]:
    """One value for each process on a GPU, also if it is on several, and for those that hold a device open."""
    places: dict[int, list[tuple[int, Row]]] = {}
    for index, gpu in enumerate(facts["gpus"] or ()):
        for row in [*(gpu["processes"] or ()), *(gpu["displays"] or ())]:
            if row["pid"] is not None:
                places.setdefault(row["pid"], []).append((index, row))
    found = [_process(facts, pid, rows) for pid, rows in places.items()]
    minors = {gpu["minor"]: index for index, gpu in enumerate(facts["gpus"] or ())}
    for text, opened in (facts["open_by"] or {}).items():
        gpus = tuple(sorted(minors[minor] for minor in opened if minor in minors))
        if int(text) not in places and gpus:
            found.append(_opener(facts, int(text), gpus))
    return found


def _process(facts: Facts, pid: int, rows: list[tuple[int, Row]]) -> Process:
    details = facts["processes"].get(str(pid)) or {}
    parts = [row["used_mib"] for _, row in rows]
    first = rows[0][1]
    name = program(first["name"]) or details.get("name") or "?"
    return Process(
        pid,
        name,
        details.get("command") or first["name"] or name,
        details.get("state"),
        details.get("blocked_in") or "",
        details.get("since"),
        details.get("start_ticks"),
        tuple((index, row["gi"]) for index, row in rows),
        None if None in parts else sum(parts),
        _types(rows),
        all(is_daemon(row) for _, row in rows),
    )


def _types(rows: list[tuple[int, Row]]) -> str:
    """Types of a process on all its GPUs, in NVIDIA's order: M+C, C+G."""
    letters = {letter for _, row in rows for letter in row["type"].split("+")}
    return "+".join(sorted(letters, key=lambda letter: ("MCG".find(letter), letter)))


def _opener(facts: Facts, pid: int, gpus: tuple[int, ...]) -> Process:
    details = facts["processes"].get(str(pid)) or {}
    name = details.get("name") or "?"
    daemon = is_daemon({"type": "", "name": name})
    return Process(
        pid,
        name,
        details.get("command") or name,
        details.get("state"),
        details.get("blocked_in") or "",
        details.get("since"),
        details.get("start_ticks"),
        tuple((gpu, None) for gpu in gpus),
        None,
        "",
        daemon,
        context=False,
    )


def _owner(facts: Facts, details: Row | None) -> Owner:
    if details is None:
        hidden = facts["pid_namespace"] == "nested"
        reason = "it is outside of the container that was asked" if hidden else facts["unread"].get("processes", GONE)
        return Owner(Kind.UNKNOWN, why=reason)
    return gpu_owners.owner_of(details["cgroup"] or "", details["mounts"])


def _key(owner: Owner, details: Row | None) -> Key:
    """Processes with equal keys are one user's."""
    if owner.kind is Kind.SLURM:
        return (owner.kind, owner.job or owner.sluid)
    if owner.kind is Kind.POD:
        return (owner.kind, owner.pod)
    if owner.kind is Kind.CONTAINER:
        return (owner.kind, owner.container)
    person = str(details["uid"]) if details else ""
    return (owner.kind, person, owner.session, owner.unit, owner.why)


def _user(facts: Facts, allocated: Allocations, group: list[tuple[Process, Owner]], me: frozenset[str]) -> User:
    owner = group[0][1]
    own = tuple(process for process, _ in group)
    details = facts["processes"].get(str(own[0].pid))
    person = _person(facts, owner, details)
    job = _job(facts, owner, own[0], details)
    who, more = _who(facts, owner, details, person)
    keys = {("pod", owner.pod), ("job", job), ("job", owner.sluid)} - {("pod", ""), ("job", "")}
    foreign, unallocated = _others(facts, allocated, own, owner, keys)
    return User(
        str(owner.kind),
        who,
        person,
        _what(facts, owner, job, group),
        {**more, **_slurm_details(details)},
        own,
        foreign,
        unallocated,
        owner.why,
        bool(person) and person in me,
    )


def _person(facts: Facts, owner: Owner, details: Row | None) -> str:
    """Login name of the person: the one who logged in, also below su and sudo; "" if no person is known.

    A pod's processes run as users of its image, which are nobody's on the host.
    """
    if details is None or owner.kind in (Kind.POD, Kind.SERVICE, Kind.UNKNOWN):
        return ""
    if owner.kind is Kind.SLURM:
        uid = owner.uid if owner.uid is not None else details["uid"]
    elif owner.kind is Kind.CONTAINER:
        uid = details["login_uid"] if details["login_uid"] is not None else owner.uid
    else:
        uid = next((uid for uid in (details["login_uid"], owner.uid, details["uid"]) if uid is not None), None)
    return "" if uid is None else _name(facts, uid)


def _name(facts: Facts, uid: int) -> str:
    return facts["users"].get(str(uid)) or f"uid {uid}"


def _who(facts: Facts, owner: Owner, details: Row | None, person: str) -> tuple[str, dict[str, str]]:
    """Owner for people, and details by name."""
    if owner.kind is Kind.POD:
        label = pod_label(facts, owner.pod)
        more = {"pod_uid": owner.pod, **({"namespace": label.partition("/")[0]} if "/" in label else {})}
        return label, {**more, **_container(facts, owner)}
    if owner.kind is Kind.CONTAINER:
        more = _container(facts, owner)
        label = f"{owner.runtime or 'container'} {more.get('container_name') or owner.container[:12]}"
        return f"{label} of {person}" if person else label, more
    if owner.kind is Kind.SESSION:
        return _session(facts, owner, details, person)
    if owner.kind is Kind.SERVICE:
        return owner.unit, {"unit": owner.unit}
    if owner.kind is Kind.UNKNOWN:
        user = _name(facts, details["uid"]) if details and details["uid"] is not None else ""
        return f"UNKNOWN (runs as {user})" if user else "UNKNOWN", {}
    more = {"unit": owner.unit} if owner.unit else {}
    return person or "UNKNOWN", more


def _session(facts: Facts, owner: Owner, details: Row | None, person: str) -> tuple[str, dict[str, str]]:
    session = facts["sessions"].get(owner.session) or {}
    more = {name: value for name in ("service", "remote", "tty") if (value := session.get(name))}
    runs_as = _name(facts, details["uid"]) if details and details["uid"] is not None else ""
    who = person or session.get("user") or "UNKNOWN"
    if runs_as and runs_as != who:
        who += f" as {runs_as}"
    if remote := more.get("remote"):
        who += f" from {remote}"
    return who, {**more, **({"session": owner.session} if owner.session else {})}


def _container(facts: Facts, owner: Owner) -> dict[str, str]:
    known = facts["containers"].get(owner.container) or {}
    rows = {"container": owner.container, "container_name": known.get("name"), "image": known.get("image")}
    return {name: value for name, value in rows.items() if value}


def _job(facts: Facts, owner: Owner, process: Process, details: Row | None) -> str:
    """Number of the process's job: by its control group, by slurmd, else by its environment; "" for none."""
    if owner.kind is not Kind.SLURM:
        return ""
    listed = facts["slurm_pids"].get(str(process.pid))
    number = (details or {}).get("slurm", {}).get("SLURM_JOB_ID", "")
    return owner.job or (listed[0] if listed else "") or number


def _what(facts: Facts, owner: Owner, job: str, group: list[tuple[Process, Owner]]) -> str:
    if owner.kind is Kind.SLURM:
        steps = sorted({one.step for _, one in group if one.step})
        number = job or owner.sluid
        return f"job {number}" + (f" step {', '.join(steps)}" if steps else "")
    if owner.kind is Kind.POD:
        return str((facts["containers"].get(owner.container) or {}).get("name") or "")
    return ""


def _slurm_details(details: Row | None) -> dict[str, str]:
    variables: Mapping[str, str] = (details or {}).get("slurm") or {}
    names = {"SLURM_JOB_NAME": "job_name", "SLURM_JOB_ACCOUNT": "account", "SLURM_JOB_PARTITION": "partition"}
    return {name: variables[key] for key, name in names.items() if variables.get(key)}


def _others(
    facts: Facts, allocated: Allocations, own: tuple[Process, ...], owner: Owner, keys: set[tuple[str, str]]
) -> tuple[dict[int, str], tuple[int, ...]]:
    """GPUs of others that these processes use, and GPUs that nobody has been given on a host of Slurm or Kubernetes."""
    if owner.kind is Kind.UNKNOWN:
        return {}, ()
    used = sorted({place for one in own if not one.daemon and one.context for place in one.places}, key=str)
    holders = {place: allocated.of(*place) for place in used}
    foreign = {
        place[0]: ", ".join(sorted(allocated.labels[key] for key in others))
        for place, others in holders.items()
        if others and not others & keys
    }
    managed = bool(facts["kubelet"] or (facts["slurmd"] and owner.kind is not Kind.POD))
    free = sorted({place[0] for place, others in holders.items() if not others})
    loose = owner.kind in (Kind.SESSION, Kind.USER_SERVICE, Kind.CONTAINER, Kind.POD)
    return foreign, tuple(free) if managed and loose and not allocated.unknown else ()
