"""eks pod and eks keys: a GPU pod that ssh reaches, and the keys that may log in."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuctl.cli.eks import pod_options
from gpuctl.cli.eks.pod_options import PodPlace
from gpuctl.cli.shared import findings, options, output
from gpuctl.cli.shared.report import Form, check_folder, publish, report_options
from gpuctl.core.errors import GpuctlError

if TYPE_CHECKING:
    from gpuctl.domain.findings import Finding
    from gpuctl.domain.public_keys import PublicKey
    from gpuctl.domain.report import Report
    from gpuctl.eks.gpu_pod.ssh_files import HostEntry
    from gpuctl.workflows.eks_access import Place

echo = partial(click.echo, err=True)


@dataclass(frozen=True)
class FormOptions:
    """Values of the pod; None where an option was not used."""

    image: str | None
    gpus: int | None
    cpu: str | None
    memory: str | None
    shm: str | None
    workspace: str | None
    storage_class: str | None
    root: bool | None
    jupyter: bool | None
    slurm: bool | None


@dataclass(frozen=True)
class ExposeOptions:
    """Load balancer of the pod. `expose`: None to leave it as it is."""

    expose: str | None
    allow_from: tuple[str, ...]
    allow_from_whole_internet: bool
    yes: bool


@dataclass(frozen=True)
class PodCommand:
    """Inputs of `eks pod`. `include`: None to ask."""

    place: PodPlace
    form: FormOptions
    exposure: ExposeOptions
    key_files: tuple[Path, ...]
    github: Sequence[str]
    agent: bool
    replace: bool
    include: bool | None
    timeout: float


form_options = options.together(
    click.option("--image", metavar="IMAGE", default=None, help="Image with sshd beside its ML tools."),
    click.option("--gpus", type=click.IntRange(1), default=None, help="GPUs.  [default: 1]"),
    click.option("--cpu", metavar="N", default=None, help="Processors, request and limit.  [default: 3]"),
    click.option("--memory", metavar="SIZE", default=None, help="Memory, request and limit.  [default: 12Gi]"),
    click.option("--shm", metavar="SIZE", default=None, help="Shared memory, which counts as memory.  [default: 4Gi]"),
    click.option("--workspace", metavar="SIZE", default=None, help="Size of a new workspace volume.  [default: 100Gi]"),
    click.option("--storage-class", metavar="NAME", default=None, help="Storage class of a new workspace volume."),
    click.option("--root", is_flag=True, default=None, help="Run as root.  [default: user 1000]"),
    click.option(
        "--jupyter/--no-jupyter",
        default=None,
        help="Run Jupyter, for `gpuctl eks jupyter`; the image needs jupyter-lab.  [default: no]",
    ),
    click.option(
        "--slurm/--no-slurm",
        default=None,
        help="Run Slurm with the pod as its node, for srun and sbatch there; the image needs it.  [default: no]",
    ),
)

expose_options = options.together(
    click.option(
        "--expose",
        type=click.Choice(["nlb", "none"]),
        default=None,
        help="Reach ssh by a Network Load Balancer, which costs, or remove it.  [default: as it is; none at first]",
    ),
    click.option(
        "--allow-from",
        metavar="CIDR",
        multiple=True,
        help="Range that may connect to the load balancer, such as 203.0.113.7/32; needed; may be repeated.",
    ),
    click.option(
        "--allow-from-whole-internet",
        is_flag=True,
        help="Everybody may connect to the load balancer, and try to log in.",
    ),
    options.sure,
)


@click.command()
@options.as_request(
    PodCommand,
    pod_options.selected,
    form_options,
    expose_options,
    pod_options.keys,
    click.option(
        "--agent/--no-agent", default=True, show_default=True, help="Public keys of the ssh agent may log in."
    ),
    click.option("--replace", is_flag=True, help="Delete the pod and make it again; its workspace stays."),
    click.option(
        "--include/--no-include",
        "include",
        default=None,
        help="Include the pod's Host entry in ~/.ssh/config, or not.  [default: ask once]",
    ),
    click.option(
        "--timeout",
        type=options.Duration(),
        default="20m",
        show_default=True,
        help="Time until the pod is ready; a new node takes minutes.",
    ),
)
@report_options
def pod(request: PodCommand, form: Form, metrics: Path | None) -> None:
    """Make a GPU pod that ssh reaches through the Kubernetes API, or add keys to the one that exists.

    Its workspace volume stays when the pod goes. The pod gets a host key of its own, which is checked at each login.
    Without --expose nlb no load balancer is made, and no port of the pod is open to others; with it, the plan is shown
    first, and confirmed.
    """
    from gpuctl.eks.gpu_pod import exposure
    from gpuctl.eks.gpu_pod.model import Options, check_options
    from gpuctl.workflows import eks_expose, eks_pod, eks_pod_keys, eks_pod_up, eks_ssh

    check_folder(metrics)
    started = time.monotonic()
    chosen = Options(**vars(request.form))
    check_options(chosen)
    choice = request.exposure.expose
    desired = exposure.read(choice, request.exposure.allow_from, request.exposure.allow_from_whole_internet)
    keys = eks_pod_keys.read_keys(eks_pod_keys.KeySources(request.key_files, request.github, agent=request.agent))
    place = pod_options.find(request.place)
    cluster = place.connect()
    eks_ssh.check_entry(cluster, place)
    if desired is not None:
        _agree(eks_expose.plan(eks_expose.live_or_refused(cluster, place), desired, place), request.exposure.yes)
    details: dict[str, Any] = {"namespace": place.namespace}
    if choice == exposure.NONE and eks_pod.absent(cluster, place):
        results = eks_expose.withdraw_alone(cluster, place, echo)
        details |= {"pod": None, "load_balancer": None}
        publish(_report(place, results, details, started), form, metrics, lambda: findings.show(results))
        return
    exposed = eks_expose.listens_at_first(cluster, place, choice)
    pod_request = eks_pod.PodRequest(chosen, keys, replace=request.replace, exposed=exposed)
    reach = eks_pod_up.Reach(choice, desired, request.timeout)
    entry, results = eks_pod_up.bring_up(cluster, place, pod_request, reach, echo)
    included = _include() if request.include else eks_ssh.is_included()
    details |= {
        "pod": place.pod,
        "ssh_host": entry.host,
        "host_key": f"{entry.alias} {entry.key}",
        "included": included,
        "load_balancer": exposure.plain(eks_expose.live_if_permitted(cluster, place)),
    }
    report = _report(place, results, details, started)
    publish(report, form, metrics, lambda: _show(results, entry, request.place, included))
    if report.exit_code == 0 and request.include is None and not included:
        _offer()
    raise click.exceptions.Exit(report.exit_code)


def _report(place: Place, results: list[Finding], details: dict[str, Any], started: float) -> Report:
    from gpuctl.domain.report import Report

    seconds = round(time.monotonic() - started, 3)
    return Report("eks pod", {place.cluster: results}, details, seconds=seconds)


def _agree(lines: Sequence[str], yes: bool) -> None:
    """Show what a load balancer would open and cost, and ask."""
    for line in lines:
        echo(line)
    if lines:
        options.confirm("Open the pod like this?", yes)


def _offer() -> None:
    """Ask on a terminal whether to include our entries in ~/.ssh/config, until that is answered."""
    from gpuctl.workflows import eks_ssh

    if not sys.stdin.isatty() or eks_ssh.was_refused():
        return
    line = eks_ssh.include_line()
    if not click.confirm(f"Add `{line}` to {eks_ssh.user_config()}, so that ssh knows the pod?", err=True):
        eks_ssh.refuse()
    elif _include():
        echo("done: `ssh` with the name of the pod's Host entry now works")


def _include() -> bool:
    """Include our entries in ~/.ssh/config; False, with the reason printed, if it cannot be written."""
    from gpuctl.workflows import eks_ssh

    if eks_ssh.is_included():
        return True
    try:
        eks_ssh.include()
    except GpuctlError as error:
        echo(f"gpuctl: {error}; {error.hint}")
        return False
    return True


def _show(results: Any, entry: HostEntry, where: PodPlace, included: bool) -> None:
    from gpuctl.domain.findings import problems

    findings.show(results)
    if problems(results):
        return
    click.echo(f"login: gpuctl eks connect {shlex.join(_words(where))}")
    if included:
        click.echo(f"or, also for rsync and editors: ssh {entry.host}")
    else:
        click.echo(f"Host entry for ssh, rsync and editors: {entry.host} (--include adds it to ~/.ssh/config)")
    if any(finding.check == "jupyter" for finding in results):
        click.echo(f"Jupyter: gpuctl eks jupyter {shlex.join(_words(where))}")
    if entry.address:
        click.echo(f"ssh goes by the load balancer {entry.address}, which costs until --expose none")
    click.echo(f"host key: {entry.alias} {entry.key}")


def _words(where: PodPlace) -> list[str]:
    """Arguments that lead to the same pod."""
    values = {"--context": where.context, "--namespace": where.namespace, "--region": where.region}
    values |= {"--pod": "" if where.pod == pod_options.POD else where.pod, "--aws-profile": where.aws_profile}
    return [where.cluster, *(word for name, value in values.items() if value for word in (name, value))]


@dataclass(frozen=True)
class KeysCommand:
    """Inputs of `eks keys`."""

    place: PodPlace
    key_files: tuple[Path, ...]
    github: Sequence[str]
    revoke: tuple[str, ...]


@click.command()
@options.as_request(
    KeysCommand,
    pod_options.selected,
    pod_options.keys,
    click.option(
        "--revoke",
        metavar="FINGERPRINT|ORIGIN",
        multiple=True,
        help="Key that may no longer log in, such as SHA256:… or github:USER; may be repeated.",
    ),
)
def keys(request: KeysCommand) -> None:
    """List the public keys that may log in to the pod; add and revoke some.

    A line that gpuctl does not understand is UNKNOWN, and the exit code then 1; a change removes it.
    A key that has other origins stays when one is revoked.
    Returns once the pod has them. A session that is open stays open when its key is revoked: --replace of eks pod ends
    it.
    """
    from gpuctl.workflows import eks_pod_keys

    added = eks_pod_keys.read_keys(eks_pod_keys.KeySources(request.key_files, request.github))
    place = pod_options.find(request.place)
    cluster = place.connect()
    if added or request.revoke:
        _list(eks_pod_keys.change_keys(cluster, place, added, request.revoke, echo), {})
        return
    authorized = eks_pod_keys.keys_of(cluster, place)
    _list(authorized.keys, authorized.unknown)
    if authorized.unknown:
        raise click.exceptions.Exit(1)


def _list(keys: Sequence[PublicKey], unknown: Mapping[int, str]) -> None:
    """Print the keys, and the lines that may be keys; the content of these is not shown."""
    if not keys and not unknown:
        click.echo("no key may log in")
        return
    rows = [(key.fingerprint, key.type, key.origin) for key in keys]
    rows += [("UNKNOWN", "UNKNOWN", f"line {number}: {why}") for number, why in unknown.items()]
    output.table(("FINGERPRINT", "TYPE", "ORIGIN"), rows)
    if unknown:
        echo("gpuctl: lines that gpuctl did not write may let others log in; --key, --github and --revoke remove them")
