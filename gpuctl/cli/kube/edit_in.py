"""kube edit-in: an editor on the files of a pod."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from gpuctl.cli.kube.pod import container, scope
from gpuctl.cli.shared import options

if TYPE_CHECKING:
    from gpuctl.kube.edit_in.plan import EditorName

EDITORS = ("cursor", "code", "nvim")


@click.command("edit-in")
@click.argument("pod_name", metavar="POD", callback=options.not_empty)
@click.option("--with", "editor", type=click.Choice(EDITORS), required=True, help="The editor.")
@click.option(
    "--path",
    metavar="PATH",
    default="",
    callback=options.not_empty,
    help="Folder or file in the pod.  [default: the container's current folder]",
)
@click.option(
    "--ssh-host",
    metavar="NAME",
    default="",
    callback=options.not_empty,
    help="Entry of ~/.ssh/config that leads into the pod.  [default: the pod's name]",
)
@click.option(
    "--port", type=click.IntRange(1, 65535), default=8080, show_default=True, help="Port of code-server in the pod."
)
@click.option("--plan", "only_plan", is_flag=True, help="Print what would be done, and start nothing.")
@container
@options.sure
@scope
def edit_in(
    pod_name: str,
    editor: EditorName,
    path: str,
    ssh_host: str,
    port: int,
    only_plan: bool,
    container: str,
    yes: bool,
    context: str,
    namespace: str,
) -> None:  # fmt: skip
    """Open an editor on the files of POD: by ssh if that leads into it, else by the editor's attach to containers.

    Without both, the port of a code-server that runs in the pod is forwarded for a browser, until Ctrl-C. Neovim runs
    in the container, in this terminal. The method is printed, with the reasons against those before it. In a production
    context it needs confirmation.
    """
    import shlex

    from gpuctl.core import settings
    from gpuctl.engine import printable
    from gpuctl.kube.edit_in import flow
    from gpuctl.kube.edit_in.plan import EditRequest
    from gpuctl.kube.pod import Scope, kubectl_for

    kube = kubectl_for(Scope(context, namespace))
    request = EditRequest(editor, pod_name, container, path, ssh_host, port)
    question = flow.question(kube, request, settings.load())
    if question and not only_plan:
        options.confirm(question, yes)
    chosen = flow.prepare(kube, request)
    for reason in chosen.why_not:
        click.echo(printable(f"not {reason}"), err=True)
    click.echo(printable(chosen.text), err=True)
    if chosen.argv:
        click.echo(printable(shlex.join(kube.argv(*chosen.argv) if chosen.method == "exec" else chosen.argv)))
    if only_plan:
        return
    if chosen.method != "forward":
        sys.exit(flow.start(kube, chosen))
    from gpuctl.cli.shared.forward_display import go
    from gpuctl.kube.forward.model import Request

    sys.exit(go(Request((chosen.port,), pod=pod_name, local=(0,), context=kube.context, namespace=kube.namespace)))
