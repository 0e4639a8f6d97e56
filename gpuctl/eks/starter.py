"""The text of a first cluster file, with values of environment variables that scripts for EKS commonly use."""

from __future__ import annotations

import re
from collections.abc import Mapping

from gpuctl.core.errors import InvalidInput

DEFAULTS: Mapping[str, str] = {
    "CLUSTER_NAME": "gpu-learning-cluster",
    "AWS_REGION": "us-west-2",
    "NODE_TYPE": "g4dn.xlarge",
    "MIN_NODES": "1",
    "MAX_NODES": "1",
    "DESIRED_NODES": "1",
}
TEXT = """---
# An EKS cluster with one group of GPU nodes. `gpuctl eks plan NAME` predicts what would fail, and its cost;
# `gpuctl eks create NAME` makes it, `gpuctl eks destroy NAME` removes it.
name: {CLUSTER_NAME}
region: {AWS_REGION}
version: "{version}"

# A VPC of its own. For existing subnets, name them instead: `subnets: [subnet-0a1b2c3d, subnet-4e5f6a7b]`
vpc: 10.20.0.0/16

node_groups:
  - name: gpu
    instance_type: {NODE_TYPE}
    min: {MIN_NODES}
    max: {MAX_NODES}
    desired: {DESIRED_NODES}
    capacity: on-demand
    placement: none
    taints: ["nvidia.com/gpu:NoSchedule"]

# How long it lives: `gpuctl eks plan` prints the cost until then, `gpuctl eks reap` removes it after.
ttl: 8h
"""


def text(environment: Mapping[str, str], version: str) -> str:
    """The text of a cluster file; variables that are set and not empty take the place of the defaults.

    `InvalidInput` for a value that is not a plain word.
    """
    strange = [name for name in DEFAULTS if not re.fullmatch(r"[\w.-]*", environment.get(name) or "")]
    if strange:
        raise InvalidInput("use the environment", f"{strange[0]} has other characters than letters, digits, . - and _")
    values = {name: environment.get(name) or default for name, default in DEFAULTS.items()}
    return TEXT.format(**values, version=version)
