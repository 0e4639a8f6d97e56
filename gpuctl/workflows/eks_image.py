"""The image of a GPU pod: built with its bases pinned by digest, and pushed to ECR or another registry."""

from __future__ import annotations

import base64
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.core.paths import collection_dir
from gpuctl.edges import image_builder
from gpuctl.edges.aws import Aws, Request, code_of, converted
from gpuctl.edges.image_builder import Builder, Login
from gpuctl.eks.image import dockerfile, reference
from gpuctl.eks.image.reference import Reference
from gpuctl.eks.objects import CLUSTER, REGION, tag_list

Progress = Callable[[str], object]
NAME = "localhost/gpuctl-gpu-pod:latest"
BASE = "BASE"
SHORT_ID = 12  # digits of an image's id that make a tag


def shipped() -> Path:
    """Folder of the Dockerfile that comes with gpuctl."""
    return collection_dir() / "examples/eks/image"


# ---- build -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BuildRequest:
    """Inputs. `folder`: the context; None for the shipped one. `file`: None for its Dockerfile or Containerfile."""

    folder: Path | None
    file: Path | None
    base: str
    arguments: tuple[str, ...]
    tag: str
    builder: str


@dataclass(frozen=True)
class Built:
    """An image of this machine. `bases`: names as the Dockerfile has them, with the images that they are pinned to."""

    name: str
    image_id: str
    bases: Mapping[str, str]
    builder: str


def build(request: BuildRequest, progress: Progress) -> Built:
    """Resolve and pin the bases, then build. All that can be refused is refused before the builder starts."""
    doing = "build the image"
    tag = reference.read(request.tag or NAME, doing)
    if tag.digest:
        raise InvalidInput(doing, f"--tag {request.tag} names a digest, which only a registry gives", "name a tag")
    folder = request.folder or shipped()
    path = _dockerfile(folder, request.file, doing)
    text, arguments = _read(path, doing), _arguments(request, doing)
    bases = dockerfile.bases(text, arguments, f"use {path}")
    builder = image_builder.detect(request.builder)
    digests = {base: _pinned(builder, base.image, progress) for base in bases}
    with tempfile.TemporaryDirectory(prefix="gpuctl-image-") as place:
        file = Path(place) / "Dockerfile"
        file.write_text(dockerfile.pinned(text, digests))
        progress(f"building {tag} with {builder.name}")
        builder.build(folder, file, str(tag), arguments)
    names = {str(base.image): str(image) for base, image in digests.items()}
    return Built(str(tag), builder.image_id(str(tag)), names, builder.name)


def _dockerfile(folder: Path, file: Path | None, doing: str) -> Path:
    if not folder.is_dir():
        raise InvalidInput(doing, f"{folder} is no folder", "name the folder whose files the image gets")
    if file is not None:
        return file
    for name in ("Dockerfile", "Containerfile"):
        if (folder / name).is_file():
            return folder / name
    raise InvalidInput(doing, f"{folder} has neither Dockerfile nor Containerfile", "name one with --file")


def _read(path: Path, doing: str) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeError) as error:
        raise InvalidInput(doing, f"{path} cannot be read: {error}", "name a Dockerfile with --file") from error


def _arguments(request: BuildRequest, doing: str) -> dict[str, str]:
    wrong = [one for one in request.arguments if not one.partition("=")[0].isidentifier() or "=" not in one]
    if wrong:
        raise InvalidInput(doing, f"--build-arg {wrong[0]} is not NAME=VALUE", "such as --build-arg EXTRA=vllm")
    arguments = dict(one.split("=", 1) for one in request.arguments)
    return {**arguments, **({BASE: request.base} if request.base else {})}


def _pinned(builder: Builder, image: Reference, progress: Progress) -> Reference:
    named = image.qualified
    if named.digest:
        progress(f"base {image}")
        return named
    if named.host == reference.LOCAL:
        hint = "push it to a registry first, or name it by digest"
        raise InvalidInput(f"pin the base {image}", "it has no digest, as it is of this machine alone", hint)
    progress(f"base {image}: resolving its digest")
    digest = builder.digest(str(named), named.name, plain_http=reference.is_loopback(named.host))
    if not reference.DIGEST.fullmatch(digest):
        wrong = f"{builder.name} does not print its digest in {named.name}"
        raise GpuctlError(f"pin the base {image}", wrong, "name it by digest")
    pinned = replace(named, tag="", digest=digest)
    progress(f"base {image} is {pinned}")
    return pinned


# ---- push ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PushRequest:
    """Inputs. `repository`: of ECR; `registry`: HOST/REPOSITORY of another registry; one of both. `tag`: "" for one of
    the image's id. `create`: make the repository of ECR if it does not exist, with the tag of `cluster`, "" for
    none."""

    image: str
    repository: str
    registry: str
    tag: str
    builder: str
    region: str
    aws_profile: str
    create: bool
    cluster: str = ""


def push(request: PushRequest, progress: Progress) -> Reference:
    """Push an image of this machine; returns its name by digest."""
    doing = "push the image"
    image = reference.read(request.image or NAME, doing)
    if bool(request.repository) == bool(request.registry):
        hint = "--repository NAME is one of ECR, --registry HOST/REPOSITORY any other, with your login"
        raise InvalidInput(doing, "name one place to push to", hint)
    _check_create(request, doing)
    if request.tag and not reference.TAG.fullmatch(request.tag):
        raise InvalidInput(doing, f"{request.tag!r} is no tag", "use letters, digits, dots, - and _")
    place = reference.repository(request.registry, doing) if request.registry else None
    if request.repository and not reference.REPOSITORY.fullmatch(request.repository):
        raise InvalidInput(doing, f"{request.repository!r} is no name of a repository", "such as team/gpu-pod")
    builder = image_builder.detect(request.builder)
    image_id = builder.image_id(str(image))
    if not image_id:
        hint = "`gpuctl eks image build` builds it; --builder chooses another builder, which has other images"
        raise InvalidInput(doing, f"{builder.name} has no image {image}", hint)
    login = None
    if place is None:
        place, login = _ecr(request, doing, progress)
    target = replace(place, tag=request.tag or image_id[:SHORT_ID])
    progress(f"pushing {image} to {target} with {builder.name}")
    digest = builder.push(str(image), str(target), login, plain_http=reference.is_loopback(place.host))
    if not reference.DIGEST.fullmatch(digest):
        raise GpuctlError(doing, f"{builder.name} does not print the digest of {target}", "read it in the registry")
    return replace(place, tag="", digest=digest)


def _check_create(request: PushRequest, doing: str) -> None:
    if request.create and not request.repository:
        raise InvalidInput(doing, "--create makes repositories of ECR", "omit it, or use --repository")
    if request.cluster and not request.create:
        raise InvalidInput(doing, "--cluster is a tag of a repository that is made", "add --create, or omit it")


def _ecr(request: PushRequest, doing: str, progress: Progress) -> tuple[Reference, Login]:
    """The repository, and a login to its registry that AWS ends after twelve hours."""
    aws = Aws(request.region, request.aws_profile)
    place = reference.repository(_uri(aws, request, progress), doing)
    ask = Request("log in to ECR", "ecr", "GetAuthorizationToken", "authorizationData")
    answers: list[Any] = aws.read(ask, lambda answer: answer)
    text = converted(answers, lambda rows: base64.b64decode(rows[0]["authorizationToken"]).decode(), doing)
    if isinstance(text, GpuctlError):
        raise text
    user, _, password = text.partition(":")
    return place, Login(place.host, user, password)


def _uri(aws: Aws, request: PushRequest, progress: Progress) -> str:
    """The address of the repository in ECR, which is made if that is asked for."""
    name = request.repository
    names = {"repositoryNames": [name]}
    ask = Request(f"use the repository {name}", "ecr", "DescribeRepositories", "repositories", names)
    try:
        answers: list[Any] = aws.read(ask, lambda answer: answer)
    except GpuctlError as error:
        if "RepositoryNotFound" not in code_of(error):
            raise
        if not request.create:
            wrong, hint = (
                f"ECR in {aws.region} does not have it",
                "add --create, or name another --repository or --region",
            )
            raise InvalidInput(ask.doing, wrong, hint) from error
        tags = {CLUSTER: request.cluster, REGION: aws.region} if request.cluster else {}
        parameters = {"repositoryName": name, **({"tags": tag_list(tags)} if tags else {})}
        make = Request(f"make the repository {name}", "ecr", "CreateRepository", "", parameters)
        answers = [aws.act(make)["repository"]]
        progress(f"made the repository {name} in {aws.region}; its images cost until it is deleted")
    uri = converted(answers, lambda rows: str(rows[0]["repositoryUri"]), ask.doing)
    if isinstance(uri, GpuctlError):
        raise uri
    return uri
