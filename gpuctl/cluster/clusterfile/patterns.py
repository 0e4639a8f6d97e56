"""Patterns of the cluster file's names and values, and the sources of its fields."""

from __future__ import annotations

from gpuctl.cluster.clusterfile.field_types import Value
from gpuctl.core.strict_yaml import MappingOf, Text, Whole

FIELD = "EldritchJS/ml-dev-env, clusters/template.yaml"
GUIDE = "NCCL user guide, environment variables"
K8S = "Kubernetes: object names and labels"

NAME = Text(r"[a-z]([-a-z0-9]*[a-z0-9])?", "a name of a-z, 0-9 and -, that starts with a letter", 40)
LABEL = Text(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", "a DNS label of a-z, 0-9 and -", 63)
OBJECT = Text(r"[a-z0-9]([-.a-z0-9]*[a-z0-9])?", "a Kubernetes name of a-z, 0-9, - and .", 253)
TO_65535 = "[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]"
URL = Text(
    rf"https://[A-Za-z0-9]([-.A-Za-z0-9]*[A-Za-z0-9])?(:({TO_65535}))?",
    "an https URL without a path, its port at most 65535, such as https://api.example.org:6443",
)
KEY = Text(r"([a-z0-9]([-.a-z0-9]*[a-z0-9])?/)?[A-Za-z0-9]([-_.A-Za-z0-9]*[A-Za-z0-9])?", "a label's name", 317)
LABEL_VALUE = Text(r"[A-Za-z0-9]([-_.A-Za-z0-9]*[A-Za-z0-9])?", "a label's value", 63)
RESOURCE = Text(
    r"[a-z0-9]([-.a-z0-9]*[a-z0-9])?/[A-Za-z0-9]([-_.A-Za-z0-9]*[A-Za-z0-9])?",
    "the name of a device plugin's resource, such as vpc.amazonaws.com/efa",
    317,
)
ATTACHMENT = Text(
    r"([a-z0-9]([-a-z0-9]*[a-z0-9])?/)?[a-z0-9]([-.a-z0-9]*[a-z0-9])?",
    "the name of a NetworkAttachmentDefinition, with its namespace where it is another: NAMESPACE/NAME",
)
INTERFACE = Text(r"[A-Za-z0-9][-_.A-Za-z0-9]*", "the name of a network interface", 15)
DEVICE = Text(r"[A-Za-z0-9][-_.A-Za-z0-9]*(:[1-9][0-9]?)?", "the name of an RDMA device, such as mlx5_6")
VARIABLE = Text(r"(NCCL|TORCH_NCCL|FI|OFI|UCX|GLOO|RDMAV)_[A-Z0-9_]+", "a variable of NCCL, libfabric, UCX or Gloo")
# The variables that the pod's own start sets, and those that network.* and gpus.* decide, are refused by a rule.
ANY_VARIABLE = Text(r"[A-Za-z_][A-Za-z0-9_]*", "the name of an environment variable")
SECRET_USE = Text(
    r"environment|/[A-Za-z0-9][-_.A-Za-z0-9]*(/[A-Za-z0-9][-_.A-Za-z0-9]*)*",
    "`environment`, for a variable of each key, or a path in the pod for files",
)
PLACE = Text(r"/[A-Za-z0-9][-_.A-Za-z0-9]*(/[A-Za-z0-9][-_.A-Za-z0-9]*)*", "a whole path in the pod, such as /data")
INSIDE = Text(
    r"(workspace|datasets)(/[A-Za-z0-9][-_.A-Za-z0-9]*)+",
    "a folder of a volume: workspace/NAME or datasets/NAME",
)
IMAGE = Text(
    r"[a-z0-9][-_.a-z0-9]*(:[0-9]{1,5})?(/[a-z0-9][-_.a-z0-9]*)*(:[A-Za-z0-9_][-_.A-Za-z0-9]{0,127})?(@sha256:[0-9a-f]{64})?",
    "an image, such as quay.io/team/ml:2026.10",
)
DOMAIN = Text(
    r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)+", "a domain, such as ml.example.org", 200
)
CIDR = Text(r"[0-9a-fA-F:.]+/[0-9]{1,3}", "an address range, such as 10.0.0.0/16")
GIT = Text(r"(https|ssh)://[^\s]+", "a git repository's https or ssh URL")
FOLDER = Text(r"[A-Za-z0-9.][-_.A-Za-z0-9]*(/[A-Za-z0-9][-_.A-Za-z0-9]*)*", "a folder of the repository")
REF = Text(r"[A-Za-z0-9][-_./A-Za-z0-9]*", "a branch, tag or commit")
ANY, LINE = Text(), Text(r"[^\n]*\S[^\n]*", "text of one line")
PORT = Whole(1024, 65535)  # below 1024 an unprivileged user may not listen
LEVELS = ("LOC", "PIX", "PXB", "PHB", "SYS")
ENVIRONMENT = MappingOf(VARIABLE, Value())
