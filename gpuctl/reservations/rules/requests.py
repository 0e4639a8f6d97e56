"""Requests are checked against one table of what the site offers, by the client and again by the service."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NoReturn

from gpuctl.core.errors import InvalidInput
from gpuctl.core.strict_yaml import did_you_mean
from gpuctl.core.text import named
from gpuctl.domain import public_keys
from gpuctl.reservations.rules.model import HOUR, Book, Limits

DOING = "reserve GPUs"
# Names that people use for a GPU type; EC2 names as in AWS' list of accelerated instance types.
ALIASES: Mapping[str, str] = {
    "a100-40gb": "a100",
    "a100-80gb": "a100",
    "a100-sxm": "a100",
    "a100-sxm4": "a100",
    "b200-sxm": "b200",
    "h100-80gb": "h100",
    "h100-sxm": "h100",
    "h100-sxm5": "h100",
    "h200-sxm": "h200",
    "g4dn": "t4",
    "g5": "a10g",
    "g6": "l4",
    "g6e": "l40s",
    "p4d": "a100",
    "p4de": "a100",
    "p5": "h100",
    "p5e": "h200",
    "p5en": "h200",
    "p6-b200": "b200",
    "p6-b300": "b300",
}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@-]{0,500}")
MOST_KEYS = 20_000  # characters of the public keys of a command, and of a user of GitHub


@dataclass(frozen=True)
class Offer:
    """GPUs of one type: the size of the largest node, and the most nodes of that size in one zone."""

    gpu_type: str
    gpus_per_node: int
    nodes: int


@dataclass(frozen=True)
class Catalogue:
    """Offers and limits of a site. `pods` and `disks`: as in `Site`."""

    offers: Mapping[str, Offer]
    limits: Limits = field(default_factory=Limits)
    aliases: Mapping[str, str] = field(default_factory=dict)
    pods: bool = False
    disks: bool = True


@dataclass(frozen=True)
class Request:
    """A request before its check. `gpus` is the total; `gpu_type` None means the only one of the site.

    `keys` (public ssh keys, one a line), `image`, `jupyter` and `github` (users of GitHub, separated by spaces): where
    sessions are pods. `users`: people to add, separated by spaces, in pods as NAME=GITHUB_USER. `docker`: is refused.
    """

    gpus: int = 1
    gpu_type: str | None = None
    length_s: int = 8 * HOUR
    name: str = ""
    disk: str | None = None
    keys: str = ""
    image: str = ""
    jupyter: bool = False
    github: str = ""
    users: str = ""
    docker: bool = False


@dataclass(frozen=True)
class Shape:
    """A checked request; `gpus` are those of each node."""

    gpu_type: str
    nodes: int
    gpus: int


def catalogue(book: Book) -> Catalogue:
    """The table of a site, from its ledger. Lost nodes are in it: they come back."""
    offers = {}
    for gpu_type in dict.fromkeys(node.gpu_type for node in book.nodes.values()):
        nodes = [node for node in book.nodes.values() if node.gpu_type == gpu_type]
        size = max(len(node.allocated) for node in nodes)
        zones = Counter(node.zone for node in nodes if len(node.allocated) == size)
        offers[gpu_type] = Offer(gpu_type, size, max(zones.values()))
    return Catalogue(offers, book.site.limits, book.site.aliases, book.site.pods, book.site.disks)


def check(request: Request, table: Catalogue) -> Shape:
    """The shape of a request; `InvalidInput` if the site can never grant it."""
    offer = table.offers[canonical_type(request.gpu_type, table)]
    _check_length(request.length_s, table.limits)
    for what, text in (("name", request.name), ("disk", request.disk or "")):
        if text and not _NAME.fullmatch(text):
            hint = "use up to 63 letters, digits, dots, dashes and underscores"
            raise InvalidInput(DOING, f"{text!r} is not a valid {what}", hint)
    if request.gpus < 1:
        raise InvalidInput(DOING, f"{request.gpus} GPUs were requested", "ask for at least one")
    _check_quota(request.gpus, table.limits)
    _check_session(request, table)
    if request.gpus <= offer.gpus_per_node:
        return Shape(offer.gpu_type, 1, request.gpus)
    return _gang(request.gpus, offer)


def _gang(gpus: int, offer: Offer) -> Shape:
    nodes, rest = divmod(gpus, offer.gpus_per_node)
    size = f"a node of type {offer.gpu_type} has {offer.gpus_per_node} GPUs"
    if rest:
        raise InvalidInput(
            DOING, f"{size}, so {gpus} are not a number of whole nodes", "more than one node: whole ones"
        )
    if nodes > offer.nodes:
        wrong = f"{size}, and at most {offer.nodes} such nodes are in one zone; {gpus} GPUs need {nodes}"
        raise InvalidInput(DOING, wrong, f"ask for at most {offer.nodes * offer.gpus_per_node}")
    return Shape(offer.gpu_type, nodes, offer.gpus_per_node)


def _check_length(length_s: int, limits: Limits) -> None:
    if not limits.shortest_s <= length_s <= limits.longest_s:
        least, most = f"{limits.shortest_s / HOUR:g}", f"{limits.longest_s / HOUR:g}"
        wrong = f"{length_s / HOUR:g} hours are outside of what the site allows"
        raise InvalidInput(DOING, wrong, f"ask for {least} to {most} hours; an active reservation can be extended")


def _check_quota(gpus: int, limits: Limits) -> None:
    for limit, owner in ((limits.gpus_per_person, "a person"), (limits.gpus_per_group, "a group")):
        if limit is not None and gpus > limit:
            wrong = f"{gpus} GPUs are more than {owner} may use at a time ({limit})"
            raise InvalidInput(DOING, wrong, f"ask for at most {limit}")


def _check_session(request: Request, table: Catalogue) -> None:
    """`InvalidInput` for what the sessions of the site do not have, and for a pod that nobody could log in to."""
    if request.disk and not table.disks:
        raise InvalidInput(DOING, "sessions of this site have no disks", "leave out --disk: home folders stay")
    if (request.image or request.jupyter) and not table.pods:
        option = "--image" if request.image else "--jupyter"
        raise InvalidInput(DOING, "sessions of this site are accounts of hosts", f"leave out {option}")
    if request.image and not _IMAGE.fullmatch(request.image):
        raise InvalidInput(DOING, f"{request.image!r} is not a valid image", "it is such as registry/name:tag")
    if request.docker:
        _refuse_docker(table)
    if request.github and not table.pods:
        raise InvalidInput(DOING, "sessions of this site are accounts of hosts", "leave out --github")
    if table.pods and (request.keys or not request.github):
        authorized_keys(request.keys)


def _refuse_docker(table: Catalogue) -> NoReturn:
    """Docker's daemon is root for everybody who may use it: no GPU would belong to one person alone."""
    if table.pods:
        wrong = (
            "a pod of a session has no privileges, and Docker needs them; so does a rootless one, for its namespaces"
        )
        raise InvalidInput(DOING, wrong, "name the image that you would run with --image")
    wrong = "who may use Docker on a host is root there, and can open every GPU"
    raise InvalidInput(DOING, wrong, "use rootless podman, which has the GPUs of your account and no others")


def authorized_keys(text: str) -> str:
    """Public keys, each line rebuilt from its type and its base64; `InvalidInput` if there is none."""
    if len(text) > MOST_KEYS:
        raise InvalidInput(DOING, f"the public keys have more than {MOST_KEYS} characters", "name fewer with --key")
    keys = public_keys.parse(text, "reservation", DOING)
    if not keys:
        raise InvalidInput(DOING, "there is no public key to log in with", public_keys.ADD_KEYS)
    return public_keys.text(keys)


def canonical_type(text: str | None, table: Catalogue) -> str:
    """The site's name of a GPU type: case-blind, with aliases; `InvalidInput` with a suggestion for a typo."""
    if not table.offers:
        raise InvalidInput(DOING, "the site has no GPUs", "add nodes to its configuration")
    if text is None:
        if len(table.offers) == 1:
            return next(iter(table.offers))
        raise InvalidInput(DOING, "the site has several GPU types", f"choose one with --type: {named(table.offers)}")
    names = {_plain(name): name for name in table.offers}
    aliases = {_plain(alias): _plain(target) for alias, target in {**ALIASES, **table.aliases}.items()}
    plain = _plain(text)
    for candidate in (plain, aliases.get(plain), aliases.get(plain.partition(".")[0])):
        if candidate in names:
            return names[candidate]
    close = did_you_mean(plain, [*names, *(alias for alias in aliases if aliases[alias] in names)])
    suggestion = f"{close} " if close.startswith("did you mean") else ""
    wrong = f"the site has no GPU type {text!r}"
    raise InvalidInput(DOING, wrong, f"{suggestion}it has {named(table.offers)}")


@lru_cache(maxsize=1024)
def _plain(name: str) -> str:
    return re.sub(r"[\s_]+", "-", name.strip().casefold()).removeprefix("nvidia-")
