"""eks image build and push: the image of a GPU pod."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

import click

from gpuctl.cli.shared import options
from gpuctl.cli.shared.click_groups import Group

echo = partial(click.echo, err=True)
MEMBERS = {"build": "gpuctl.cli.eks.image:build", "push": "gpuctl.cli.eks.image:push"}
BUILDERS = ("docker", "podman", "buildah", "")


@click.group("image", cls=Group, members=MEMBERS)
def image() -> None:
    """Image of the GPU pod: build it with docker, podman or buildah, and push it to ECR or another registry."""


builder_option = click.option(
    "--builder",
    type=click.Choice(BUILDERS),
    default="",
    metavar="docker|podman|buildah",
    help="Builder.  [default: the first of them that works]",
)


@dataclass(frozen=True)
class BuildCommand:
    """Inputs of `eks image build`. `folder`: None for the image that comes with gpuctl."""

    folder: Path | None
    file: Path | None
    base: str
    build_arg: tuple[str, ...]
    tag: str
    builder: str


@click.command()
@options.as_request(
    BuildCommand,
    click.argument("folder", required=False, type=click.Path(exists=True, file_okay=False, path_type=Path)),
    click.option(
        "--file",
        "-f",
        default=None,
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="Dockerfile.  [default: Dockerfile or Containerfile of the folder]",
    ),
    click.option("--base", metavar="IMAGE", default="", help="Base image: the build argument BASE."),
    click.option("--build-arg", metavar="NAME=VALUE", multiple=True, help="Build argument; may be repeated."),
    click.option("--tag", "-t", metavar="NAME", default="", help="Name.  [default: localhost/gpuctl-gpu-pod:latest]"),
    builder_option,
)
def build(request: BuildCommand) -> None:
    """Build an image with sshd, JupyterLab and Slurm on a base of yours, or the Dockerfile of FOLDER.

    Each base is pinned by digest: one without is resolved, shown, and written into a copy of the Dockerfile. The image
    is printed on standard output, everything else on standard error.
    """
    from gpuctl.workflows import eks_image

    built = eks_image.build(
        eks_image.BuildRequest(
            request.folder, request.file, request.base, request.build_arg, request.tag, request.builder
        ),
        echo,
    )
    echo(f"built {built.name} ({built.image_id[: eks_image.SHORT_ID]}); push it:")
    named = "" if built.name == eks_image.NAME else f" {built.name}"
    echo(f"  gpuctl eks image push{named} --repository NAME     or --registry HOST/REPOSITORY")
    click.echo(built.name)


@dataclass(frozen=True)
class PushCommand:
    """Inputs of `eks image push`. `image`: "" for the default name of `build`."""

    image: str
    repository: str
    registry: str
    tag: str
    create: bool
    cluster: str
    region: str
    aws_profile: str
    builder: str


@click.command()
@options.as_request(
    PushCommand,
    click.argument("image", required=False, default=""),
    click.option("--repository", metavar="NAME", default="", help="Repository of ECR; the login is made for the push."),
    click.option("--registry", metavar="HOST/REPOSITORY", default="", help="Another registry, with your login to it."),
    click.option("--tag", "-t", metavar="TAG", default="", help="Tag in the registry.  [default: the image's id]"),
    click.option("--create", is_flag=True, help="Make the repository of ECR if it does not exist."),
    click.option(
        "--cluster",
        metavar="NAME",
        default="",
        callback=options.not_empty,
        help="With --create, tag it as of this cluster: `eks destroy` and `eks cost` then list it.",
    ),
    click.option("--region", metavar="REGION", default="", callback=options.not_empty, help="Region of ECR."),
    options.aws_profile,
    builder_option,
)
def push(request: PushCommand) -> None:
    """Push an image to ECR or another registry, and print its name by digest on standard output.

    The login to ECR is made for this push: its file is in a folder that only you can read, of this push alone, which is
    removed. Your logins and credential helpers are not touched.
    """
    from gpuctl.workflows import eks_image

    try:
        pushed = eks_image.push(
            eks_image.PushRequest(
                request.image,
                request.repository,
                request.registry,
                request.tag,
                request.builder,
                request.region,
                request.aws_profile,
                request.create,
                request.cluster,
            ),
            echo,
        )
    except KeyboardInterrupt:
        echo("the registry may or may not have the tag: run it again; layers that it has are not sent twice")
        raise
    echo(f"use it: gpuctl eks pod NAME --image {pushed}")
    click.echo(str(pushed))
