"""Read EKS cluster files, reporting every mistake with its line, and find them by name in eks/."""

from __future__ import annotations

import re
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

import yaml

from gpuctl.core import file_lookup
from gpuctl.core.errors import InvalidInput
from gpuctl.core.strict_yaml import (
    At,
    Choice,
    EmptyFile,
    Flag,
    ListOf,
    MappingOf,
    Mistakes,
    Node,
    Parsed,
    Schema,
    Section,
    Text,
    Whole,
    from_plain,
    listed,
    load_file,
)
from gpuctl.eks.model import PRIVATE_BLOCKS, Capacity, EksCluster, NodeGroup

FOLDER, ENDINGS = "eks", (".yaml", ".yml")
HINT = "docs/eks.md describes the fields"
EMPTY = EmptyFile("cluster file", "`gpuctl eks init` writes one")
MOST_NODES = 1000  # of a group


def find(name: str) -> Path:
    """The file of a name or path; `InvalidInput` for none, or several."""
    return file_lookup.find("EKS cluster", name, FOLDER, ENDINGS)


def load(path: Path) -> EksCluster:
    """The cluster that a file describes; `InvalidInput` lists every mistake."""
    cluster: EksCluster = load_file(path, SCHEMA, "use the EKS cluster file", EMPTY, HINT)
    return cluster


def check(text: str, doing: str) -> EksCluster:
    """The cluster that a text of ours describes; `InvalidInput` names the fields with a mistake, as it has no file."""
    mistakes = Mistakes()
    try:
        plain = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InvalidInput(doing, "a value is no plain text", "use letters, digits, . - and _") from error
    cluster: EksCluster = SCHEMA.read(from_plain(plain), At("", mistakes))
    if mistakes.items:
        raise InvalidInput(doing, listed(mistakes.by_line(), HINT), HINT)
    return cluster


def _block(text: str) -> IPv4Network | None:
    try:
        return IPv4Network(text)
    except ValueError:
        return None


def _vpc(text: str) -> IPv4Network | None:
    block = _block(text)
    if block is not None and not any(block.subnet_of(private) for private in PRIVATE_BLOCKS):
        raise ValueError(f"is {text}: not a private block, such as 10.20.0.0/16")
    if block is not None and not 16 <= block.prefixlen <= 24:
        raise ValueError(f"is {text}: EC2 takes /16 at most, and three zones need /24 at least")
    return block


def _amount(text: str) -> float | None:
    return float(text) if re.fullmatch(r"[0-9]{1,7}(\.[0-9]{1,2})?", text) and float(text) > 0 else None


def _hours(text: str) -> float | None:
    match = re.fullmatch(r"([0-9]{1,5})(h|d)", text)
    return float(match[1]) * {"h": 1, "d": 24}[match[2]] if match and int(match[1]) else None


_NAME = Text(r"[A-Za-z0-9][A-Za-z0-9_-]*", "a name of letters, digits, - and _", 100)
_TYPE = Text(r"[a-z0-9-]+\.[a-z0-9-]+", "an instance type such as p5.48xlarge", 40)
_TAG = Text(r"[\w .:/=+@-]+", "text of a tag", 256)
RESERVED_LABELS = re.compile(r"([a-z0-9-]+\.)*(kubernetes\.io|k8s\.io|eks\.amazonaws\.com)")
OPEN_LABELS = ("node.kubernetes.io", "kubelet.kubernetes.io")  # which a kubelet may set for its node
_LABEL = Text(r"([A-Za-z0-9.-]+/)?[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?", "a label", 316)
_TAINT = r"[\w./-]+(=[\w.-]*)?:(NoSchedule|PreferNoSchedule|NoExecute)"
_ARN = r"arn:aws[\w-]*:iam::[0-9]{12}:(role|user)/[\w+=,.@/-]+"
_SWITCH = Flag({"true": True, "false": False})
_AMIS = (
    *("AL2023_x86_64_NVIDIA", "AL2023_ARM_64_NVIDIA", "AL2023_x86_64_STANDARD", "AL2023_ARM_64_STANDARD"),
    *("BOTTLEROCKET_x86_64_NVIDIA", "BOTTLEROCKET_ARM_64_NVIDIA", "BOTTLEROCKET_x86_64", "BOTTLEROCKET_ARM_64"),
)


def _field(at: At, node: Node, name: str, wrong: str, hint: str = "") -> None:
    """Refuse a field of a section at its own line."""
    item = node.value[name] if isinstance(node.value, dict) else node
    at.inside(name).refuse(item, wrong, hint)


def _group(values: dict[str, Any], node: Node, at: At) -> NodeGroup | None:
    sizes = [values["min"], values["desired"], values["max"]]
    if sizes != sorted(sizes):
        at.refuse(node, f"has min {sizes[0]}, desired {sizes[1]} and max {sizes[2]}", "keep min <= desired <= max")
    if not values["max"]:
        _field(at, node, "max", "is 0", "a group that never has nodes is of no use")
    capacity = Capacity(values.get("capacity", Capacity.ON_DEMAND))
    values["capacity"] = capacity
    needs = capacity in (Capacity.RESERVATION, Capacity.BLOCK)
    if needs and "reservation" not in values:
        at.refuse(node, f"has capacity {capacity} and no reservation", "add `reservation: cr-…`")
    if not needs and "reservation" in values:
        _field(at, node, "reservation", f"is for capacity reservation or block, not {capacity}", "leave it out")
    for label in values.get("labels", ()):
        prefix = label.rpartition("/")[0]
        if RESERVED_LABELS.fullmatch(prefix) and prefix not in OPEN_LABELS:
            wrong = f"has the label {label}: EKS refuses labels with the prefix {prefix}/"
            _field(at, node, "labels", wrong, "use a prefix of yours, or none")
    if capacity is Capacity.BLOCK and values.get("placement", "none") != "none":
        _field(at, node, "placement", "is not for capacity blocks, whose nodes are near anyway", "leave it out")
    return NodeGroup(**values)


_GROUP = Section(
    {
        "name": _NAME,
        "instance_type": _TYPE,
        "min": Whole(0, MOST_NODES),
        "max": Whole(0, MOST_NODES),
        "desired": Whole(0, MOST_NODES),
        "capacity": Choice(tuple(str(one) for one in Capacity)),
        "reservation": Text(r"cr-[0-9a-f]{8,17}", "an id such as cr-0a1b2c3d"),
        "placement": Text(r"[ -~]{1,255}", "none, cluster, or the name of a placement group"),
        "layout": Choice(("efa-only", "bandwidth", "efa", "plain")),
        "ami": Choice(_AMIS),
        "disk_gib": Whole(20, 16384),
        "labels": MappingOf(_LABEL, Text(r"[\w.-]*", "the value of a label", 63, empty=())),
        "taints": ListOf(
            Text(
                r"[\w./-]+(=[\w.-]*)?:(NoSchedule|PreferNoSchedule|NoExecute)",
                "a taint such as nvidia.com/gpu:NoSchedule",
            ),
            "taints",
            unique=True,
        ),
        "max_pods": Whole(4, 1000),
    },
    ("name", "instance_type", "min", "max", "desired"),
    _group,
)


class _Groups:
    """Node groups, each with a name of its own."""

    def read(self, node: Node, at: At) -> tuple[NodeGroup, ...]:
        groups: tuple[NodeGroup, ...] = _GROUPS.read(node, at)
        names: list[str] = []
        for number, group in enumerate(groups):
            if group is not None and group.name in names and isinstance(node.value, list):
                at.item(number).refuse(
                    node.value[number], f"has the name {group.name} of an earlier group", "rename it"
                )
            names += [group.name] if group is not None else []
        return groups

    def schema(self) -> Schema:
        return _GROUPS.schema()


_GROUPS = ListOf(_GROUP, "node groups")


def _cluster(values: dict[str, Any], node: Node, at: At) -> EksCluster:
    if bool(values.get("subnets")) == ("vpc" in values):
        both = "both" if values.get("subnets") else "neither"
        hint = "name at least two subnets, or give the block of a new VPC"
        at.refuse(node, f"has {both} of subnets and vpc", hint)
    if len(values.get("subnets") or (0, 0)) == 1:
        _field(at, node, "subnets", "is one subnet", "EKS needs subnets in two zones")
    public, private = values.get("public_endpoint", True), values.get("private_endpoint", True)
    if not public and not private:
        at.refuse(node, "has neither a public nor a private endpoint", "switch one on")
    if values.get("allowed") and not public:
        _field(at, node, "allowed", "is for a public endpoint", "leave it out")
    ttl = values.pop("ttl", None)
    return EksCluster(**values, ttl_hours=ttl)


SCHEMA = Section(
    {
        "name": Text(r"[A-Za-z0-9][A-Za-z0-9_-]*", "a name of letters, digits, - and _", 100),
        "region": Text(r"[a-z]{2}(-[a-z]+)+-[0-9]", "a region such as us-west-2"),
        "version": Text(r"1\.[0-9]{2}", "a version such as 1.34"),
        "node_groups": _Groups(),
        "subnets": ListOf(Text(r"subnet-[0-9a-f]{8,17}", "an id such as subnet-0a1b2c3d"), "subnets", unique=True),
        "vpc": Parsed(_vpc, "a block such as 10.20.0.0/16"),
        "public_endpoint": _SWITCH,
        "private_endpoint": _SWITCH,
        "allowed": ListOf(Parsed(_block, "a block such as 203.0.113.0/24"), "blocks", unique=True),
        "admins": ListOf(
            Text(r"arn:aws[\w-]*:iam::[0-9]{12}:(role|user)/[\w+=,.@/-]+", "the ARN of a role or user"),
            "ARNs",
            unique=True,
        ),
        "addons": ListOf(_NAME, "addons", unique=True),
        "cni": ListOf(Text(r"[A-Z_]+=\S+", "NAME=VALUE, such as WARM_IP_TARGET=2"), "settings", unique=True),
        "ttl": Parsed(_hours, "a time such as 8h or 3d"),
        "budget_usd": Parsed(_amount, "an amount such as 250"),
        "tags": MappingOf(_TAG, _TAG),
    },
    ("name", "region", "version", "node_groups"),
    _cluster,
)
