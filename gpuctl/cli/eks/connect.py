"""eks connect, cp, test-gpu: use a GPU pod; eks tunnel and token: what ssh and kubectl call for that."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import click

from gpuctl.cli.eks import pod_options
from gpuctl.cli.eks.destroy import region
from gpuctl.cli.eks.pod_options import PodPlace
from gpuctl.cli.shared import findings, options, output
from gpuctl.cli.shared.report import Form, check_folder, publish, report_options
from gpuctl.core.errors import InvalidInput


@dataclass(frozen=True)
class ConnectCommand:
    """Inputs of `eks connect`; no `argv` for a shell."""

    place: PodPlace
    argv: tuple[str, ...]


@click.command()
@options.as_request(
    ConnectCommand,
    pod_options.selected,
    click.argument("argv", metavar="[-- COMMAND...]", nargs=-1, type=click.UNPROCESSED),
)
def connect(request: ConnectCommand) -> None:
    """Log in to the pod by ssh, or run COMMAND there. The exit code is that of ssh.

    The pod's host key comes from the Kubernetes API, and ssh checks it.
    """
    from gpuctl.workflows import eks_expose, eks_pod, eks_ssh

    place = pod_options.find(request.place)
    cluster = place.connect()
    pod = eks_pod.running(cluster, place, f"connect to {place.pod}")
    entry = eks_expose.entry(cluster, place, pod)
    raise click.exceptions.Exit(eks_ssh.connect(entry, request.argv))


@dataclass(frozen=True)
class CopyCommand:
    """Inputs of `eks cp`. `paths`: sources, then the target."""

    place: PodPlace
    paths: tuple[str, ...]


@click.command("cp")
@options.as_request(
    CopyCommand,
    pod_options.selected,
    click.argument("paths", metavar="SOURCE... TARGET", nargs=-1, required=True),
)
def copy(request: CopyCommand) -> None:
    """Copy files and folders to or from the pod, over ssh. Paths in the pod begin with ":", as :/workspace/data.

    An interrupted copy leaves a part of a file: run it again. The exit code is that of scp.
    """
    from gpuctl.workflows import eks_expose, eks_pod, eks_ssh

    *sources, target = request.paths
    check_paths(sources, target)
    place = pod_options.find(request.place)
    cluster = place.connect()
    pod = eks_pod.running(cluster, place, f"copy files of {place.pod}")
    raise click.exceptions.Exit(eks_ssh.copy(eks_expose.entry(cluster, place, pod), sources, target))


def check_paths(sources: list[str], target: str) -> None:
    """`InvalidInput` unless exactly one side is in the pod, and local sources exist."""
    doing, hint = "copy files", "paths in the pod begin with a colon: gpuctl eks cp NAME results.csv :/workspace/"
    if not sources:
        raise InvalidInput(doing, "a source and a target are needed", hint)
    remote = [path.startswith(":") for path in sources]
    if target.startswith(":") == any(remote) or any(remote) != all(remote):
        raise InvalidInput(doing, "either all sources or the target must be in the pod", hint)
    if missing := [path for path in sources if not path.startswith(":") and not Path(path).exists()]:
        raise InvalidInput(doing, f"{output.names(missing)}: no such file or folder", hint)


@click.command("test-gpu")
@options.as_request(PodPlace, pod_options.selected)
@click.option("--strict", is_flag=True, help="Exit with 1 also for WARN.")
@report_options
def test_gpu(request: PodPlace, strict: bool, form: Form, metrics: Path | None) -> None:
    """Test the pod's GPUs: nvidia-smi lists as many as were requested, and torch, if the image has it, computes.

    Runs in the pod through the Kubernetes API, without ssh.
    """
    from gpuctl.domain.findings import worst_first
    from gpuctl.domain.report import Report
    from gpuctl.workflows import eks_pod

    check_folder(metrics)
    started = time.monotonic()
    place = pod_options.find(request)
    with output.slow_notice("testing its GPUs"):
        results = eks_pod.test_gpus(place.connect(), place)
    seconds = round(time.monotonic() - started, 3)
    report = Report("eks test-gpu", {place.cluster: results}, {"pod": place.pod}, strict=strict, seconds=seconds)
    publish(report, form, metrics, lambda: findings.show(worst_first(results)))
    raise click.exceptions.Exit(report.exit_code)


# ---- what other programs call ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TunnelCommand:
    """A pod, with the kubeconfigs that lead to its cluster."""

    cluster: str
    context: str
    namespace: str
    pod: str
    kubeconfig: tuple[Path, ...]


@click.command(hidden=True)
@options.as_request(
    TunnelCommand,
    click.argument("cluster"),
    click.option("--context", required=True),
    click.option("--namespace", required=True),
    click.option("--pod", required=True),
    click.option("--kubeconfig", multiple=True, required=True, type=click.Path(path_type=Path)),
)
def tunnel(request: TunnelCommand) -> None:
    """Connect standard input and output to the pod's sshd: the ProxyCommand of the Host entry."""
    from gpuctl.workflows import eks_ssh
    from gpuctl.workflows.eks_access import Place

    place = Place(request.cluster, request.pod, request.context, request.namespace, request.kubeconfig)
    eks_ssh.tunnel(place)


@click.command(hidden=True)
@click.argument("cluster")
@region
@options.aws_profile
def token(cluster: str, region: str, aws_profile: str) -> None:
    """Print credentials for an EKS cluster: the credential program of the kubeconfig that gpuctl writes."""
    from gpuctl.workflows import eks_access

    click.echo(eks_access.token(cluster, region, aws_profile))
