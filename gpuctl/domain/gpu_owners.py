"""Owner of a process, from its control groups: a pod, Slurm job, container, login session or service.

Forms by runtime, driver and version of cgroups: docs/nodes.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache


class Kind(StrEnum):
    """Sort of owner; UNKNOWN if the control groups do not name one."""

    SLURM = "slurm job"
    POD = "pod"
    CONTAINER = "container"
    SESSION = "session"
    USER_SERVICE = "user service"
    SERVICE = "service"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Owner:
    """Owner of a process; fields that its control groups do not name are empty.

    `pod`: uid as the API server writes it, for a static pod (`static`) the hash of its configuration. `runtime`:
    "docker", "containerd", "crio", "podman", "ecs"; "" if the path does not tell. `job`: number of a Slurm job;
    `sluid` takes its place from Slurm 26.05 on. `step`: "0", "batch", "extern". `slurm_node`: node name, if several
    slurmd share the host. `uid`: user of the session, user manager or Slurm job. `monitor`: the process watches a
    container (conmon), and is not inside. `why`: reason for UNKNOWN.
    """

    kind: Kind
    pod: str = ""
    static: bool = False
    container: str = ""
    runtime: str = ""
    job: str = ""
    sluid: str = ""
    step: str = ""
    slurm_node: str = ""
    uid: int | None = None
    session: str = ""
    unit: str = ""
    monitor: bool = False
    why: str = ""


_ID = r"[0-9a-f]{12,64}"
_UID = r"[0-9a-f]+(?:[-_][0-9a-f]+)*"
_RUNTIMES = {"cri-containerd": "containerd", "crio": "crio", "docker": "docker", "libpod": "podman"}
_NAMES = "|".join(_RUNTIMES)
# kubepods-burstable-pod<UID with _>.slice; a nested kubelet has names in front.
_POD_SLICE = re.compile(rf"(?:[\w.-]+-)?pod({_UID})\.slice")
_POD_FOLDER = re.compile(rf"pod({_UID})")
_SCOPE = re.compile(rf"({_NAMES})-(?:(conmon)-)?({_ID})(?:\.scope)?")
# runc without SystemdCgroup below a parent in systemd's style: "…slice:cri-containerd:<id>".
_COLONS = re.compile(rf"(?:([^:]*):)?({_NAMES}):({_ID})")
_PLAIN_ID = re.compile(_ID)
# Folders whose subfolders are containers, named by their id alone.
_PARENTS = {"docker": "docker", "k8s.io": "containerd", "ecs": "ecs", "libpod_parent": "podman"}
_STEPS_SCOPE = re.compile(r"(?:(.+)_)?slurmstepd\.scope")
_SLURM_V1 = re.compile(r"slurm(?:_(.+))?")
_SLURM_UID = re.compile(r"uid_(\d+)")
_JOB = re.compile(r"job_(\d+)")
_SLUID = re.compile(r"s[0-9A-HJKMNP-TV-Z]{13}")  # Crockford's base 32
_STEP = re.compile(r"step_(\w+(?:\+\d+)?)")
_SESSION = re.compile(r"session-(\w+)\.scope")
_USER_SLICE = re.compile(r"user-(\d+)\.slice")
_USER_MANAGER = re.compile(r"user@(\d+)\.service")
_SSHD = re.compile(r"sshd?(?:@.*)?\.service")
_UNIT = re.compile(r".+\.(?:service|scope|mount|socket|swap)")
# Roots of the mounts at IN_CONTAINERS; on the host itself the kubelet's folders are mount points, not roots.
_IN_MOUNTS = re.compile(rf"/(?:overlay-)?containers/({_ID})/")
_POD_IN_MOUNTS = re.compile(rf"/pods/({_UID})/(?:etc-hosts|containers/)")
IN_CONTAINERS = ("/etc/hosts", "/etc/hostname", "/etc/resolv.conf", "/dev/termination-log")
# A process in a job of Slurm that runs in a pod belongs to the job.
_RANK = (Kind.SLURM, Kind.POD, Kind.CONTAINER, Kind.SESSION, Kind.USER_SERVICE, Kind.SERVICE)
STATIC = 32  # hexadecimal digits of a hash, without dashes
NOBODY = Owner(Kind.UNKNOWN)


@lru_cache(maxsize=4096)  # the ranks of a job have few different ones
def owner_of(cgroup: str, mountinfo: str = "") -> Owner:
    """Owner by the text of /proc/PID/cgroup, of any version; the text of mountinfo serves where the path is hidden.

    Of several lines (version 1), the one that names the most specific owner counts: Slurm marks only some controllers.
    """
    paths = [path for line in cgroup.splitlines() if (path := _path(line))]
    owners = [_of_path(path) for path in paths]
    known = [one for one in owners if one.kind is not Kind.UNKNOWN]
    hidden = any(path.startswith("/..") for path in paths) or not known
    best = min(known, key=_order, default=NOBODY)
    if hidden and best.kind not in (Kind.SLURM, Kind.POD):
        best = _by_mounts(mountinfo, best)
    return best if best.kind is not Kind.UNKNOWN else replace(best, why=_why(paths))


def _path(line: str) -> str:
    """Path of a line "number:controllers:path"; the path itself may have colons, and a removed group a mark."""
    parts = line.strip().removesuffix(" (deleted)").split(":", 2)
    return parts[2] if len(parts) == 3 and parts[0].isdigit() and parts[2].startswith("/") else ""


def _order(one: Owner) -> tuple[int, int]:
    """Sort key: the kind, then the number of known details."""
    details = (one.pod, one.container, one.job or one.sluid, one.step, one.session, one.unit)
    return _RANK.index(one.kind), -sum(map(bool, details))


def _why(paths: Iterable[str]) -> str:
    shown = sorted(set(paths), key=lambda path: (-len(path), path))
    if not shown:
        return "its control groups could not be read"
    if shown[0] == "/":
        return "it is in the root control group, or the path is hidden by a cgroup namespace"
    return f"its control group {shown[0]} has no known form"


def _of_path(path: str) -> Owner:
    parts = [part for part in path.split("/") if part]
    # Below their own manager users make control groups as they like: names of jobs and pods mean nothing there.
    delegated = any(_USER_MANAGER.fullmatch(part) for part in parts)
    of_slurm, pod = (None, "") if delegated else (_slurm(parts), _pod(parts))
    container = _container(parts)
    inner, static = container or NOBODY, len(pod) == STATIC
    if of_slurm is not None and (pod or container):
        return replace(of_slurm, pod=pod, static=static, container=inner.container, runtime=inner.runtime)
    if of_slurm is not None:
        return of_slurm
    if pod:
        return replace(inner, kind=Kind.POD, pod=pod, static=static)
    session = _session(parts)
    if container is not None:
        return replace(container, kind=Kind.CONTAINER, uid=session.uid if session else None)
    return session or _service(parts)


def _slurm(parts: list[str]) -> Owner | None:
    """Job and step below slurmstepd.scope (version 2) or slurm/uid_U (version 1)."""
    for at, part in enumerate(parts):
        scope, old = _STEPS_SCOPE.fullmatch(part), _SLURM_V1.fullmatch(part)
        below = parts[at + 1 :]
        uid = _SLURM_UID.fullmatch(below[0]) if old and below else None
        if scope is None and uid is None:
            continue
        below = below[1:] if uid else below
        job = _JOB.fullmatch(below[0]) if below else None
        sluid = below[0] if below and _SLUID.fullmatch(below[0]) else ""
        match = scope or old
        node = (match[1] or "") if match else ""
        if job is None and not sluid:
            return Owner(Kind.SERVICE, unit="slurmstepd.scope", slurm_node=node) if scope else None
        steps = [found[1] for name in below[1:] if (found := _STEP.fullmatch(name))]
        number = job[1] if job else ""
        return Owner(
            Kind.SLURM,
            job=number,
            sluid=sluid,
            step=steps[0] if steps else "",
            slurm_node=node,
            uid=int(uid[1]) if uid else None,
        )
    return None


def _pod(parts: list[str]) -> str:
    """Uid of the innermost pod, with dashes; "" for none."""
    for part in reversed(parts):
        head = part.partition(":")[0]
        match = _POD_SLICE.fullmatch(head) or _POD_FOLDER.fullmatch(head)
        if match:
            return match[1].replace("_", "-")
    return ""


def _container(parts: list[str]) -> Owner | None:
    """Innermost container of the path."""
    for at in range(len(parts) - 1, -1, -1):
        part, parent = parts[at], parts[at - 1] if at else ""
        if scope := _SCOPE.fullmatch(part):
            name, conmon, identity = scope.groups()
            runtime = _RUNTIMES[name]
            if conmon:
                return Owner(Kind.CONTAINER, runtime=runtime, unit=part, monitor=True, container=identity)
            return Owner(Kind.CONTAINER, container=identity, runtime=runtime)
        if colons := _COLONS.fullmatch(part):
            return Owner(Kind.CONTAINER, container=colons[3], runtime=_RUNTIMES[colons[2]])
        plain = _runtime(parts[:at], parent) if _PLAIN_ID.fullmatch(part) else None
        if plain is not None:
            return Owner(Kind.CONTAINER, container=part, runtime=plain)
    return None


def _runtime(above: list[str], parent: str) -> str | None:
    """Runtime of a container that is named by its id alone, by the folders above; None if it is no container."""
    if parent in _PARENTS:
        return _PARENTS[parent]
    if "ecs" in above[:1]:  # /ecs/<task>/<id>
        return "ecs"
    return "" if _POD_FOLDER.fullmatch(parent) or _POD_SLICE.fullmatch(parent) else None


def _session(parts: list[str]) -> Owner | None:
    """Login session or user manager below user.slice."""
    users = [int(match[1]) for part in parts if (match := _USER_SLICE.fullmatch(part))]
    for part in reversed(parts):
        if match := _SESSION.fullmatch(part):
            return Owner(Kind.SESSION, session=match[1], uid=users[-1] if users else None)
    managers = [int(match[1]) for part in parts if (match := _USER_MANAGER.fullmatch(part))]
    if managers:
        unit = next((part for part in reversed(parts) if _UNIT.fullmatch(part)), "")
        return Owner(Kind.USER_SERVICE, uid=managers[-1], unit="" if _USER_MANAGER.fullmatch(unit) else unit)
    return Owner(Kind.SESSION, uid=users[-1]) if users else None


def _service(parts: list[str]) -> Owner:
    unit = next((part for part in parts if _UNIT.fullmatch(part)), "")
    if _SSHD.fullmatch(unit):  # without pam_systemd, a login stays in sshd's own control group
        return Owner(Kind.SESSION, unit=unit)
    return Owner(Kind.SERVICE, unit=unit) if unit else NOBODY


def _by_mounts(mountinfo: str, otherwise: Owner) -> Owner:
    """Pod and container that the mounts of the process name."""
    fields = [line.split(" ") for line in mountinfo.splitlines()]
    roots = "\n".join(row[3] for row in fields if len(row) > 4 and row[4] in IN_CONTAINERS)
    pod, container = _POD_IN_MOUNTS.search(roots), _IN_MOUNTS.search(roots)
    number = container[1] if container else otherwise.container
    if pod:
        uid = pod[1].replace("_", "-")
        return Owner(Kind.POD, pod=uid, static=len(uid) == STATIC, container=number, runtime=otherwise.runtime)
    if container and otherwise.kind is not Kind.CONTAINER:
        return Owner(Kind.CONTAINER, container=number)
    return otherwise
