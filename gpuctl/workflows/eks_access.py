"""Reach the Kubernetes API of an EKS cluster: by a context of the kubeconfig, or by AWS with a kubeconfig of ours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

from gpuctl.core.errors import GpuctlError
from gpuctl.core.paths import config_dir, private, write_atomically
from gpuctl.edges.aws import Aws, Request, converted
from gpuctl.edges.kube import cluster as kube
from gpuctl.edges.kube import config
from gpuctl.edges.kube.cluster import Cluster
from gpuctl.edges.programs import gpuctl_program
from gpuctl.eks.gpu_pod import kubeconfig, model

TOKEN_MINUTES = 14  # EKS accepts one for 15


@dataclass(frozen=True)
class Place:
    """A pod's place. `cluster`: its name for people and ssh. `context` with `files`: how Kubernetes is reached.

    `account` and `region`: those of AWS; "" where a context of the kubeconfig leads to the cluster.
    """

    cluster: str
    pod: str
    context: str
    namespace: str
    files: Sequence[Path]
    account: str = ""
    region: str = ""

    def connect(self) -> Cluster:
        return kube.connect(self.context, self.namespace, self.files)


@dataclass(frozen=True)
class AccessRequest:
    """A cluster by name. `context`: of the kubeconfig; "" asks AWS, in `region` ("": the AWS configuration's)."""

    cluster: str
    pod: str
    context: str
    namespace: str
    region: str
    aws_profile: str


def place(request: AccessRequest) -> Place:
    """The place of a pod; without a context AWS is asked for the cluster, and a kubeconfig of ours is written."""
    model.check_name(request.pod)
    model.check_cluster(request.cluster)
    if request.context:
        files = [path.absolute() for path in config.files()]
        cluster = kube.connect(request.context, request.namespace, files)
        return Place(request.cluster, request.pod, request.context, cluster.namespace, files)
    aws = Aws(request.region, request.aws_profile)
    account, path = _write_kubeconfig(aws, request.cluster)
    namespace = request.namespace or "default"
    return Place(request.cluster, request.pod, request.cluster, namespace, [path], account, aws.region)


def _write_kubeconfig(aws: Aws, name: str) -> tuple[str, Path]:
    """The account of a cluster, and a kubeconfig of ours for it: one for each account, profile and region."""
    doing = f"reach the cluster {name}"
    answers: list[Any] = aws.read(Request(doing, "eks", "DescribeCluster", "", {"name": name}), lambda answer: answer)
    state = converted(answers, lambda rows: str(rows[0]["cluster"].get("status")), doing)
    if state == "CREATING":
        raise GpuctlError(doing, "its control plane is being made", f"`gpuctl eks status {name}` shows its state")
    profile = ["--aws-profile", aws.profile] if aws.profile else []
    login = [gpuctl_program(), "eks", "token", name, "--region", aws.region, *profile]
    text = converted(answers, lambda rows: kubeconfig.kubeconfig(name, rows[0]["cluster"], login), doing)
    if isinstance(text, GpuctlError):
        raise text
    account = converted(answers, lambda rows: str(rows[0]["cluster"]["arn"]).split(":")[4], doing)
    if isinstance(account, GpuctlError):
        raise account
    parts = [account, *([quote(aws.profile, safe="")] if aws.profile else []), aws.region, name]
    folder = (config_dir() / "eks").absolute()
    try:
        path = private(folder) / f"{'.'.join(parts)}.kubeconfig"
        write_atomically(path, text)
    except OSError as error:
        wrong = f"{error.filename or folder}: {error.strerror or error}"
        raise GpuctlError(
            f"write gpuctl's kubeconfig of {name}", wrong, "is HOME writable, and the disk not full?"
        ) from error
    return account, path


def token(cluster: str, region: str, aws_profile: str) -> str:
    """Credentials for an EKS cluster, as a credential program prints them."""
    model.check_cluster(cluster)
    expires = datetime.now(UTC) + timedelta(minutes=TOKEN_MINUTES)
    return kubeconfig.credential(Aws(region, aws_profile).cluster_token(cluster), expires)
