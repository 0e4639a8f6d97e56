"""Form of a GPU pod, and names of its objects."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields

from gpuctl.core.errors import InvalidInput
from gpuctl.domain.quantity import at_least

NAME = re.compile(r"[a-z](?:[a-z0-9-]{0,38}[a-z0-9])?")
CLUSTER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")  # EKS's rule for names
CPU = re.compile(r"(?=.*[1-9])(?:\d{1,6}(?:\.\d{1,3})?|\d{1,9}m)")  # Kubernetes counts thousandths
SIZE = re.compile(r"(?=.*[1-9])\d{1,15}(?:\.\d{1,3})?(?:[kMGTP]|[KMGTP]i)?")
CLASS = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?")  # Kubernetes' rule for names of storage classes
IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@-]*")
OF_WORKSPACE = ("workspace", "storage_class")
POD_LABEL, PART_LABEL = "gpuctl.io/gpu-pod", "gpuctl.io/part"
FORM, HOST_KEY, KEYS, SSHD = "gpuctl/form", "gpuctl/host-key", "gpuctl/keys", "gpuctl/sshd"


@dataclass(frozen=True)
class Form:
    """Values that a pod is made from; `workspace` and `storage_class` count only while its volume does not exist."""

    image: str
    gpus: int = 1
    cpu: str = "3"
    memory: str = "12Gi"
    shm: str = "4Gi"
    workspace: str = "100Gi"
    storage_class: str = ""
    root: bool = False
    jupyter: bool = False
    slurm: bool = False

    def as_text(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)


@dataclass(frozen=True)
class Options:
    """Values of the command line; None where an option was not used."""

    image: str | None = None
    gpus: int | None = None
    cpu: str | None = None
    memory: str | None = None
    shm: str | None = None
    workspace: str | None = None
    storage_class: str | None = None
    root: bool | None = None
    jupyter: bool | None = None
    slurm: bool | None = None


_SIZE = (SIZE, "a size such as 512Mi or 16Gi")
VALUES: Mapping[str, tuple[re.Pattern[str], str]] = {  # option -> its values
    "cpu": (CPU, "a number of processors such as 4 or 500m"),
    "memory": _SIZE,
    "shm": _SIZE,
    "workspace": _SIZE,
    "storage_class": (CLASS, "a name of a storage class"),
    "image": (IMAGE, "a reference such as registry/name:tag"),
}


def check_name(name: str) -> None:
    """`InvalidInput` if this cannot be the name of a pod and a host alias."""
    if not NAME.fullmatch(name):
        hint = "use a to z, 0 to 9 and -, at most 40 characters, and begin with a letter"
        raise InvalidInput(f"use the pod {name!r}", "that is no name for a pod", hint)


def check_cluster(name: str) -> None:
    """`InvalidInput` if EKS has no such names, and an ssh config file could not hold it."""
    if not CLUSTER_NAME.fullmatch(name):
        hint = "use letters, digits, - and _, as EKS does"
        raise InvalidInput(f"use the cluster {name!r}", "that is no name of a cluster", hint)


def check_options(options: Options) -> None:
    """`InvalidInput` with every value that Kubernetes would not take."""
    wrong = [
        f"--{name.replace('_', '-')} {value!r} is not {meaning}"
        for name, (pattern, meaning) in VALUES.items()
        if (value := getattr(options, name)) is not None and not pattern.fullmatch(value)
    ]
    if wrong:
        raise InvalidInput("use these options", "; ".join(wrong), "`gpuctl eks pod --help` shows the defaults")


def form_of(options: Options, before: Form | None, doing: str) -> Form:
    """The form of a new pod: options, else the values of the pod before, else the defaults."""
    chosen = {name: value for name, value in asdict(options).items() if value is not None}
    values = {**(asdict(before) if before else {}), **chosen}
    if "image" not in values:
        hint = "add --image with an image that has sshd (openssh-server) beside its ML tools"
        raise InvalidInput(doing, "no image is named", hint)
    form = Form(**values)
    if not at_least(form.memory, form.shm):
        wrong = f"--shm {form.shm} is more than --memory {form.memory}, of which it is a part"
        raise InvalidInput(doing, wrong, "add memory, or use less shared memory")
    return form


def demands_more(form: Form, before: Form) -> bool:
    """True if a pod of this form takes more from a quota than one of the form before."""
    fits = at_least(before.cpu, form.cpu) and at_least(before.memory, form.memory)
    return form.gpus > before.gpus or not fits


def differences(options: Options, existing: Form) -> list[str]:
    """Options that an existing pod does not have, as "image: a, not b"; those of its workspace are left out."""
    now = asdict(existing)
    return [
        f"{name}: {now[name]}, not {value}"
        for name, value in asdict(options).items()
        if value is not None and value != now[name] and name not in OF_WORKSPACE
    ]


def read_form(annotations: Mapping[str, str]) -> Form | None:
    """The form in a pod's annotations; None if it has none that fits."""
    try:
        plain = json.loads(annotations.get(FORM, ""))
        known = {field.name for field in fields(Form)}
        return Form(**{name: value for name, value in plain.items() if name in known})
    except (ValueError, TypeError, AttributeError):
        return None


def workspace_name(pod: str) -> str:
    return f"{pod}-workspace"


def keys_name(pod: str) -> str:
    return f"{pod}-keys"


def start_name(pod: str) -> str:
    return f"{pod}-start"
