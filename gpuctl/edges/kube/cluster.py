"""A Kubernetes cluster's objects, through its API.

They are plain data as `kubectl get -o json` prints them, not the library's models: those refuse fields that are newer
than they are. Every request here can be repeated without harm.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote

from gpuctl.core.errors import InvalidInput
from gpuctl.edges.kube import api as kube_api
from gpuctl.edges.kube import config
from gpuctl.edges.kube.api import Api, Client, Object, Query, Request
from gpuctl.edges.kube.errors import Conflict, NotThere

__all__ = ["Cluster", "Kind", "Object", "Request", "connect", "name_of", "selector"]
MANAGER = "gpuctl"
PAGE = 500
APPLY = "application/apply-patch+yaml"


@dataclass(frozen=True)
class Kind:
    """A kind of object, and how this cluster serves it."""

    api_version: str
    kind: str
    plural: str
    namespaced: bool


def connect(context: str = "", namespace: str = "", files: Sequence[Path] = (), patience_s: float = 60) -> Cluster:
    """The cluster of a context (the current one where it is empty) of these kubeconfigs, or of those kubectl reads."""
    paths = list(files) or config.files()
    doing = f"use the context {context}" if context else "use the current context"
    if not paths:
        raise InvalidInput(doing, "there is no kubeconfig", "set KUBECONFIG, or write ~/.kube/config")
    named = {each.name: each for each in config.contexts(*paths)}
    found = named.get(context) if context else config.current(*paths)
    if found is None:
        raise InvalidInput(doing, "no kubeconfig has it", f"known: {', '.join(named) or 'none'}")
    return Cluster(kube_api.client(doing, paths, found.name), namespace or found.namespace, patience_s)


class Cluster(Api):
    """A cluster, with the namespace that is meant where an object names none."""

    def __init__(self, client: Client, namespace: str, patience_s: float = 60) -> None:
        super().__init__(client, patience_s)
        self.namespace = namespace
        self._kinds: dict[tuple[str, str], Kind] = {}

    # ---- objects ------------------------------------------------------------------------------------------------

    def apply(self, wanted: Object, dry_run: bool = False) -> Object:
        """Server-side apply, which creates or changes it; never forced: `Conflict` where others own a field of it."""
        doing = f"{'validate' if dry_run else 'apply'} {name_of(wanted)}"
        meta = wanted["metadata"]
        path = self.path_of(self.kind_of(wanted), meta["name"], meta.get("namespace"))
        query = [("fieldManager", MANAGER), *([("dryRun", "All")] if dry_run else [])]
        return self.ask(Request(doing, "PATCH", path, query, wanted, APPLY))

    def get(self, kind: Kind, name: str) -> Object | None:
        """One by its name; None where it is not there."""
        try:
            return self.ask(Request(f"read {kind.kind} {name}", "GET", self.path_of(kind, name)))
        except NotThere:
            return None

    def find(self, kind: Kind, labels: Mapping[str, str]) -> list[Object]:
        """Those that have all of these labels."""
        return self.find_with_version(kind, labels)[0]

    def find_by(self, kind: Kind, fields: str) -> list[Object]:
        """Those of our namespace that a field selector takes."""
        return self._listed(kind, self.path_of(kind), ("fieldSelector", fields))[0]

    def find_with_version(self, kind: Kind, labels: Mapping[str, str]) -> tuple[list[Object], str]:
        """The same, and from where a watch goes on."""
        return self._listed(kind, self.path_of(kind), ("labelSelector", selector(labels)))

    def find_everywhere(self, kind: Kind, fields: str) -> list[Object]:
        """Those of all namespaces that a field selector takes; `Forbidden` for who may look into one only."""
        return self._listed(kind, self.path_of(replace(kind, namespaced=False)), ("fieldSelector", fields))[0]

    def _listed(self, kind: Kind, path: str, which: tuple[str, str]) -> tuple[list[Object], str]:
        found: list[Object] = []
        more: Query = ()
        while True:
            query = [which, ("limit", str(PAGE)), *more]
            try:
                answer = self.ask(Request(f"list {kind.plural}", "GET", path, query))
            except NotThere:
                if not more:
                    raise
                found, more = [], ()  # the server forgot where it was: from the beginning
                continue
            # Items of a list do not say what they are.
            found += [{"apiVersion": kind.api_version, "kind": kind.kind, **each} for each in answer["items"]]
            meta = answer["metadata"]
            if not meta.get("continue"):
                return found, str(meta["resourceVersion"])
            more = [("continue", str(meta["continue"]))]

    def delete(self, found: Object, propagation: str = "Background") -> None:
        """Ask that exactly this object goes, never a newer one of its name. That it is gone already is well."""
        meta = found["metadata"]
        body = {"propagationPolicy": propagation, "preconditions": {"uid": meta["uid"]}}
        path = self.path_of(self.kind_of(found), meta["name"], meta.get("namespace"))
        with contextlib.suppress(NotThere, Conflict):
            self.ask(Request(f"delete {name_of(found)}", "DELETE", path, body=body))

    def remove(
        self, kinds: Iterable[Kind], labels: Mapping[str, str], limit_s: float, propagation: str = "Background"
    ) -> list[Object]:
        """Delete all of these kinds with these labels and wait until they are gone; those that still are there.

        With "Foreground" what belongs to them goes first.
        """
        end = time.monotonic() + limit_s
        asked: set[str] = set()
        left = [each for kind in kinds for each in self.find(kind, labels)]
        while left:
            for each in left:
                if each["metadata"]["uid"] not in asked:
                    self.delete(each, propagation)
                    asked.add(each["metadata"]["uid"])
            # Asked again although its time is over: what takes no time to go is gone by now.
            late = time.monotonic() > end
            left = [each for kind in {self.kind_of(each) for each in left} for each in self.find(kind, labels)]
            if late:
                break
            time.sleep(0.2 if left else 0)
        return left

    # ---- kinds --------------------------------------------------------------------------------------------------

    def kind(self, api_version: str, kind: str) -> Kind:
        """How the cluster serves a kind ("apps/v1", "StatefulSet"); `NotThere` where it does not."""
        if (api_version, kind) not in self._kinds:
            with contextlib.suppress(NotThere):
                self._kinds |= self._served(api_version)
        if (api_version, kind) not in self._kinds:
            raise NotThere(f"find the kind {kind} of {api_version}", "the cluster does not serve it")
        return self._kinds[api_version, kind]

    def _served(self, api_version: str) -> dict[tuple[str, str], Kind]:
        request = Request(f"ask the cluster what it serves of {api_version}", "GET", _group(api_version))
        listed = self.ask(request)["resources"]
        own = [each for each in listed if "/" not in each["name"]]
        kinds = [Kind(api_version, each["kind"], each["name"], each["namespaced"]) for each in own]
        return {(api_version, each.kind): each for each in kinds}

    def kind_of(self, wanted: Object) -> Kind:
        return self.kind(wanted["apiVersion"], wanted["kind"])

    def serves(self, api_version: str, kind: str) -> bool:
        """Whether it knows such a kind."""
        try:
            self.kind(api_version, kind)
        except NotThere:
            return False
        return True

    def may(self, verb: str, kind: Kind, name: str = "") -> bool:
        """Whether we may do that with objects of a kind, or with the one of this name, as far as our namespace goes."""
        group, (plural, _, sub) = kind.api_version.rpartition("/")[0].partition("/")[0], kind.plural.partition("/")
        asked = {"verb": verb, "group": group, "resource": plural, **({"name": name} if name else {})}
        asked |= {**({"subresource": sub} if sub else {}), **({"namespace": self.namespace} if kind.namespaced else {})}
        api = "authorization.k8s.io/v1"
        body = {"apiVersion": api, "kind": "SelfSubjectAccessReview", "spec": {"resourceAttributes": asked}}
        path = f"/apis/{api}/selfsubjectaccessreviews"
        answer = self.ask(Request(f"ask whether we may {verb} {kind.plural}", "POST", path, body=body))
        return bool(answer["status"].get("allowed"))

    def path_of(self, kind: Kind, name: str = "", namespace: str | None = None) -> str:
        """Where the API has them."""
        at = f"/namespaces/{quote(namespace or self.namespace)}" if kind.namespaced else ""
        return f"{_group(kind.api_version)}{at}/{kind.plural}" + (f"/{quote(name)}" if name else "")


def _group(api_version: str) -> str:
    """Where the API has a group: the first one has no name."""
    return f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"


def selector(labels: Mapping[str, str]) -> str:
    """Labels as a selector that takes only what has all of them."""
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))


def name_of(found: Object) -> str:
    """Kind and name, as in "Pod nccl-0"."""
    return f"{found['kind']} {found['metadata']['name']}"
