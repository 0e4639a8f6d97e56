"""Names of container images, as Docker and the OCI write them: HOST/REPOSITORY:TAG or HOST/REPOSITORY@DIGEST."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from gpuctl.core.errors import InvalidInput

PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
REPOSITORY = re.compile(rf"{PART}(?:/{PART})*")
HOST = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:]+\])(?::\d{1,5})?")
TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
LOOPBACK = re.compile(r"(?:localhost|127(?:\.\d{1,3}){3}|\[::1\])(?::\d+)?")
LOCAL = "localhost"  # without a port, the name that podman and buildah give to images of no registry


@dataclass(frozen=True)
class Reference:
    """A name of an image. `host`: "" where none is named. `tag` and `digest`: "" for none."""

    host: str
    repository: str
    tag: str = ""
    digest: str = ""

    @property
    def name(self) -> str:
        """The name without tag and digest."""
        return f"{self.host}/{self.repository}" if self.host else self.repository

    @property
    def qualified(self) -> Reference:
        """The name with Docker's registry where none is named, as podman and buildah need it."""
        if self.host:
            return self
        repository = self.repository if "/" in self.repository else f"library/{self.repository}"
        return replace(self, host="docker.io", repository=repository)

    def __str__(self) -> str:
        return f"{self.name}@{self.digest}" if self.digest else f"{self.name}:{self.tag or 'latest'}"


def read(text: str, doing: str) -> Reference:
    """A name from text; `InvalidInput` if it is none. A tag beside a digest is dropped: the digest decides."""
    rest, at, digest = text.partition("@")
    name, colon, tag = rest.rpartition(":")
    if not colon or "/" in tag:  # a colon before the port of a host
        name, colon, tag = rest, "", ""
    first, slash, other = name.partition("/")
    has_host = bool(slash) and (any(one in first for one in ".:") or first == LOCAL)
    host, repository = (first, other) if has_host else ("", name)
    fits = (
        REPOSITORY.fullmatch(repository)
        and (not has_host or HOST.fullmatch(host))
        and (not colon or TAG.fullmatch(tag))
        and (not at or DIGEST.fullmatch(digest))
    )
    if not fits:
        hint = "it is HOST/REPOSITORY:TAG or HOST/REPOSITORY@sha256:…, in lower case"
        raise InvalidInput(doing, f"{text!r} is no name of an image", hint)
    return Reference(host, repository, "" if digest else tag, digest)


def repository(text: str, doing: str) -> Reference:
    """A place to push to, HOST/REPOSITORY; `InvalidInput` for a tag, a digest or no host."""
    place = read(text, doing)
    if not place.host or place.tag or place.digest:
        raise InvalidInput(doing, f"{text!r} is no HOST/REPOSITORY", "such as registry.example.com/team/gpu-pod")
    return place


def is_loopback(host: str) -> bool:
    """True for a registry of this machine, which needs no TLS."""
    return LOOPBACK.fullmatch(host) is not None
