"""Kubernetes objects of a session in a pod, as plain data, and the programs that are run in it."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_DOWN, Decimal
from typing import Any

from gpuctl.domain import kube_nodes
from gpuctl.domain.public_keys import PublicKey
from gpuctl.domain.quantity import amount
from gpuctl.eks.gpu_pod import objects, scripts
from gpuctl.eks.gpu_pod.model import Form, Options
from gpuctl.reservations.agent import PodValues
from gpuctl.reservations.rules.idle import Use
from gpuctl.reservations.rules.reports import Order
from gpuctl.workflows.reservations_disk_objects import PERSON, SERVICE, claim_name

Object = dict[str, Any]
RESERVATION, ATTEMPT = "gpuctl.io/reservation", "gpuctl.io/attempt"
NODE, GPUS = "gpuctl/node", "gpuctl/gpus"
TAINT = "gpuctl.io/reservations"  # of nodes that nobody else is to use
CREATED_BY = "app.kubernetes.io/created-by"
HUGE_PAGES_OF_EFA = 5120 * 2**20  # bytes, as of AWS' examples: libfabric takes its buffers of them
NUMBER = re.compile(r"[0-9]{1,9}")  # of programs in images that anybody made: isdigit() takes more
_LABEL_VALUE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
SHARE = Decimal("0.9")  # of the node, for all of its sessions: the rest is for the pods that every node runs
NO_DISK = "nothing stays when the session ends: it has no disk"
STAYS = f"{scripts.WORKSPACE} is the disk and stays when the session ends; all else does not"
WARNING_FILE = f"{scripts.RUN}/warning"
# A terminal that is stopped (Ctrl-S) must not hold us.
WARN = f"""number=0
limit=
! command -v timeout >/dev/null || limit="timeout 2"
for terminal in /dev/pts/[0-9]*; do
  [ -O "$terminal" ] || continue
  $limit sh -c 'printf "\\r\\n*** %s ***\\r\\n" "$1" >"$2"' sh "$1" "$terminal" 2>/dev/null && number=$((number + 1))
done
printf '%s\\n' "$1" >{WARNING_FILE} || exit 1
echo "$number"
"""
# Established connections of sshd (proc(5), /proc/net/tcp; 01 is ESTABLISHED), and the use of each GPU.
USE = f"""number=0
while read -r _ local _ state _; do
  case "$local $state" in *:{scripts.SSH_PORT:04X}\\ 01) number=$((number + 1)) ;; esac
done </proc/net/tcp || exit 1
echo "connections $number"
nvidia-smi --query-gpu=utilization.gpu --format=csv,noheader,nounits 2>/dev/null
exit 0
"""


@dataclass(frozen=True)
class Sizes:
    """Sizes of sessions and disks. `cpu` and `memory`: of one GPU's part; "" for its share of the node."""

    cpu: str = ""
    memory: str = ""
    disk: str = "100Gi"
    storage_class: str = ""

    def options(self, image: str) -> Options:
        """The values as those of a pod, to be checked."""
        return Options(
            image=image,
            cpu=self.cpu or None,
            memory=self.memory or None,
            workspace=self.disk,
            storage_class=self.storage_class or None,
        )

    def form(self, image: str, gpus: int, of: int, room: Mapping[str, str], *, jupyter: bool = False) -> Form:
        """The form of a session with `gpus` of the `of` GPUs of a node with this room.

        Half of the memory may be shared memory, through which the ranks of one node exchange data.
        """
        part = Decimal(gpus) / of
        cpu = _times(self.cpu, Decimal(gpus)) if self.cpu else _times(room.get("cpu"), part * SHARE)
        memory = _times(self.memory, Decimal(gpus)) if self.memory else _times(room.get("memory"), part * SHARE)
        cpus = max((cpu or Decimal(1)).quantize(Decimal("0.001"), ROUND_DOWN), Decimal("0.001"))
        mebibytes = max(int((memory or Decimal(2**30)) / 2**20), 16)
        return Form(
            image=image,
            gpus=gpus,
            cpu=f"{cpus:f}",
            memory=f"{mebibytes}Mi",
            shm=f"{mebibytes // 2}Mi",
            workspace=self.disk,
            storage_class=self.storage_class,
            jupyter=jupyter,
        )


def _times(text: object, factor: Decimal) -> Decimal | None:
    number = amount(text)
    return None if number is None else number * factor


@dataclass(frozen=True)
class Pod:
    """A session: the service, the node, and the order with its values. `room`: allocatable resources of the node."""

    service: str
    node: str
    order: Order
    person: str
    variables: Mapping[str, str]
    values: PodValues
    room: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.values.name


def prerequisites(made: Pod, form: Form, keys: Sequence[PublicKey], private_key: str) -> list[Object]:
    """Objects that a pod needs before it: its keys, its host key, its scripts, and for a gang the names of its pods."""
    items = [
        objects.keys(made.name, keys, form),
        objects.host(made.name, secrets.token_hex(4), private_key, secrets.token_hex(32) if form.jupyter else ""),
        objects.start(made.name, form),
    ]
    if made.values.gang:
        spec = {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,  # ranks look for each other before all are ready
            "selector": {SERVICE: made.service, RESERVATION: made.order.reservation, ATTEMPT: str(made.order.attempt)},
        }
        items.append({"apiVersion": "v1", "kind": "Service", "metadata": {"name": made.values.gang}, "spec": spec})
    return [_marked(item, made) for item in items]


def pod(made: Pod, form: Form, before: Sequence[Object], host_public: str) -> Object:
    """The pod, on its node alone. `before`: its `prerequisites`."""
    host = next(str(item["metadata"]["name"]) for item in before if "-host-" in item["metadata"]["name"])
    item = _marked(objects.pod(made.name, form, host, host_public), made)
    spec, disk = item["spec"], made.values.disk
    here = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [made.node]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [here]}}
    spec["affinity"] = {"nodeAffinity": required}
    # A node that does not report for a while keeps its sessions, as the rules of reservations say.
    away = [{"key": f"node.kubernetes.io/{state}", "operator": "Exists"} for state in ("not-ready", "unreachable")]
    tolerations = [{"key": TAINT, "operator": "Exists"}, *({**one, "effect": "NoExecute"} for one in away)]
    spec["tolerations"] = [*spec["tolerations"], *tolerations]
    source = {"persistentVolumeClaim": {"claimName": claim_name(disk)}} if disk else {"emptyDir": {}}
    volumes = [volume for volume in spec["volumes"] if volume["name"] != "workspace"]
    spec["volumes"] = [*volumes, {"name": "workspace", **source}]
    if made.values.gang:
        spec |= {"hostname": made.name, "subdomain": made.values.gang}
    main = spec["containers"][0]
    if fabric := _fabric(made):
        main["resources"] = {kind: {**values, **fabric} for kind, values in main["resources"].items()}
    texts = {**made.variables, "GPUCTL_NOTE": STAYS if disk else NO_DISK, "GPUCTL_VARIABLES": _for_sshd(made.variables)}
    main["env"] = [*main["env"], *({"name": name, "value": text} for name, text in sorted(texts.items()))]
    return item


def _fabric(made: Pod) -> dict[str, str]:
    """EFA adapters of a session, and huge pages for them where the node has enough."""
    if not made.values.efa:
        return {}
    pages = amount(made.room.get(kube_nodes.HUGE_PAGES)) or 0
    huge = {kube_nodes.HUGE_PAGES: "5120Mi"} if pages >= HUGE_PAGES_OF_EFA else {}
    return {kube_nodes.EFA: str(made.values.efa), **huge}


def _marked(item: Object, made: Pod) -> Object:
    """An object with the marks of its session."""
    meta = item["metadata"]
    labels = {SERVICE: made.service, RESERVATION: made.order.reservation, ATTEMPT: str(made.order.attempt)}
    if _LABEL_VALUE.fullmatch(made.person):
        labels[CREATED_BY] = made.person
    notes = {NODE: made.node, PERSON: made.person, GPUS: json.dumps(list(made.order.gpus))}
    marks = {
        "labels": {**(meta.get("labels") or {}), **labels},
        "annotations": {**(meta.get("annotations") or {}), **notes},
    }
    return {**item, "metadata": {**meta, **marks}}


def _for_sshd(variables: Mapping[str, str]) -> str:
    """Variables as sshd's SetEnv takes them, for logins."""
    return " ".join(f'"{name}={text}"' for name, text in sorted(variables.items()))


def node_of(item: Object) -> str:
    """The node of a pod: the one that has it, else the one that it is made for. Nobody can change either."""
    spec = item["spec"]
    try:
        terms = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
        return str(spec.get("nodeName") or terms[0]["matchFields"][0]["values"][0])
    except (KeyError, IndexError, TypeError):
        return ""


def numbers(text: str) -> tuple[int, ...]:
    """GPUs in an annotation; empty if somebody has changed it."""
    try:
        plain = json.loads(text)
    except ValueError:
        return ()
    return tuple(plain) if isinstance(plain, list) and all(type(one) is int for one in plain) else ()


def read_use(output: str) -> Use:
    """Use by the output of `USE`; None for what it does not print."""
    first, *rows = output.splitlines() or [""]
    word, _, number = first.partition(" ")
    connections = int(number) if word == "connections" and NUMBER.fullmatch(number) else None
    percents = [int(row) for row in map(str.strip, rows) if NUMBER.fullmatch(row) and int(row) <= 100]
    known = percents and len(percents) == len([row for row in rows if row.strip()])
    busy = max(percents, default=0)
    return Use(float(busy) if known or busy else None, connections)
