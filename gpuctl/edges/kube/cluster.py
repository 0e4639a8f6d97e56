"""Objects of a Kubernetes cluster, through its API.

Objects are plain data as in `kubectl get -o json`, not the library's models, which reject fields that are newer than
the library. All requests here can safely be repeated.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote

from gpuctl.core.errors import InvalidInput
from gpuctl.domain.kube_errors import Conflict, NotFound
from gpuctl.edges.kube import api as kube_api
from gpuctl.edges.kube import config
from gpuctl.edges.kube.api import Api, Budget, Client, Object, Query, Request

__all__ = ["Cluster", "Kind", "Object", "Request", "connect", "name_of", "selector"]
MANAGER = "gpuctl"
PAGE = 500
MOST_OF_A_LIST = 2**30  # bytes of all pages: Kubernetes promises to work with 150,000 pods at most
APPLY = "application/apply-patch+yaml"


@dataclass(frozen=True)
class Kind:
    """A kind of object, and how this cluster serves it."""

    api_version: str
    kind: str
    plural: str
    namespaced: bool


def connect(context: str = "", namespace: str = "", files: Sequence[Path] = (), patience_s: float = 60) -> Cluster:
    """Connect to the cluster of a context ("": the current one) of these kubeconfigs, else of kubectl's."""
    paths = list(files) or config.files()
    doing = f"use the context {context}" if context else "use the current context"
    if not paths:
        raise InvalidInput(doing, "there is no kubeconfig", "set KUBECONFIG, or write ~/.kube/config")
    contexts = {item.name: item for item in config.contexts(*paths)}
    chosen = contexts.get(context) if context else config.current(*paths)
    if chosen is None:
        raise InvalidInput(doing, "no kubeconfig has it", f"known: {', '.join(contexts) or 'none'}")
    return Cluster(kube_api.client(doing, paths, chosen.name), namespace or chosen.namespace, patience_s)


class Cluster(Api):
    """A cluster, with the namespace of objects that do not name one."""

    def __init__(self, client: Client, namespace: str, patience_s: float = 60) -> None:
        super().__init__(client, patience_s)
        self.namespace = namespace
        self._kinds: dict[tuple[str, str], Kind] = {}

    # ---- objects ------------------------------------------------------------------------------------------------

    def apply(self, desired: Object, *, dry_run: bool = False, force: bool = False) -> Object:
        """Create or change an object by server-side apply; `Conflict` if others own one of its fields.

        `force` takes over these fields; it requires the user's consent.
        """
        doing = f"{'validate' if dry_run else 'apply'} {name_of(desired)}"
        meta = desired["metadata"]
        path = self.path_of(self.kind_of(desired), meta["name"], meta.get("namespace"))
        query = [("fieldManager", MANAGER), *([("dryRun", "All")] if dry_run else [])]
        query += [("force", "true")] if force else []
        return self.ask(Request(doing, "PATCH", path, query, desired, APPLY))

    def get(self, kind: Kind, name: str) -> Object | None:
        """Return one object by name; None if it does not exist."""
        try:
            return self.ask(Request(f"read {kind.kind} {name}", "GET", self.path_of(kind, name)))
        except NotFound:
            return None

    def find(self, kind: Kind, labels: Mapping[str, str]) -> list[Object]:
        """Return the objects in our namespace that have all of these labels."""
        return self.find_with_version(kind, labels)[0]

    def find_by(self, kind: Kind, fields: str) -> list[Object]:
        """Return the objects in our namespace that match a field selector."""
        return self._listed(kind, self.path_of(kind), ("fieldSelector", fields))[0]

    def find_with_version(self, kind: Kind, labels: Mapping[str, str]) -> tuple[list[Object], str]:
        """Like `find`, with the resource version from which a watch continues."""
        return self._listed(kind, self.path_of(kind), ("labelSelector", selector(labels)))

    def find_everywhere(self, kind: Kind, fields: str) -> list[Object]:
        """Return the objects in all namespaces that match a field selector; `Forbidden` without cluster-wide rights."""
        return self._listed(kind, self.path_of(replace(kind, namespaced=False)), ("fieldSelector", fields))[0]

    def find_everywhere_by(self, kind: Kind, labels: Mapping[str, str]) -> list[Object]:
        """Return the objects in all namespaces with all of these labels; `Forbidden` without cluster-wide rights."""
        path = self.path_of(replace(kind, namespaced=False))
        return self._listed(kind, path, ("labelSelector", selector(labels)))[0]

    def _listed(self, kind: Kind, path: str, which: tuple[str, str]) -> tuple[list[Object], str]:
        objects: list[Object] = []
        more: Query = ()
        budget = Budget(MOST_OF_A_LIST)
        while True:
            query = [which, ("limit", str(PAGE)), *more]
            try:
                answer = self.ask(Request(f"list {kind.plural}", "GET", path, query, budget=budget))
            except NotFound:
                if not more:
                    raise
                objects, more, budget = [], (), Budget(MOST_OF_A_LIST)  # the continue token expired: start again
                continue
            # Items of a list lack apiVersion and kind.
            objects += [{"apiVersion": kind.api_version, "kind": kind.kind, **item} for item in answer["items"]]
            meta = answer["metadata"]
            if not meta.get("continue"):
                return objects, str(meta["resourceVersion"])
            more = [("continue", str(meta["continue"]))]

    def delete(self, live: Object, propagation: str = "Background") -> None:
        """Delete exactly this object, never a newer one of its name; it is no error if it is already gone."""
        with contextlib.suppress(NotFound, Conflict):
            self.delete_exactly(live, propagation)

    def delete_exactly(self, live: Object, propagation: str = "Background") -> None:
        """Delete this object; `NotFound` if its name is gone, `Conflict` if a newer object has its name."""
        meta = live["metadata"]
        body = {"propagationPolicy": propagation, "preconditions": {"uid": meta["uid"]}}
        path = self.path_of(self.kind_of(live), meta["name"], meta.get("namespace"))
        self.ask(Request(f"delete {name_of(live)}", "DELETE", path, body=body))

    def evict(self, pod: Object) -> None:
        """Evict exactly this pod with its grace period; `BudgetForbids` while a PodDisruptionBudget forbids it.

        `NotFound` if its name is gone, `Conflict` if a newer pod has its name.
        """
        meta = pod["metadata"]
        version = "policy/v1" if self.serves("policy/v1", "PodDisruptionBudget") else "policy/v1beta1"
        body = {
            "apiVersion": version,
            "kind": "Eviction",
            "metadata": {"name": meta["name"], "namespace": meta["namespace"]},
            "deleteOptions": {"preconditions": {"uid": meta["uid"]}},
        }
        path = f"{self.path_of(self.kind_of(pod), meta['name'], meta['namespace'])}/eviction"
        self.ask(Request(f"evict {name_of(pod)}", "POST", path, body=body))

    def remove(
        self, kinds: Iterable[Kind], labels: Mapping[str, str], limit_s: float, propagation: str = "Background"
    ) -> list[Object]:
        """Delete all objects of these kinds with these labels; return those that still exist after `limit_s`.

        With "Foreground", their dependents are deleted first.
        """
        end = time.monotonic() + limit_s
        requested: set[str] = set()
        left = [item for kind in kinds for item in self.find(kind, labels)]
        while left:
            for item in left:
                if item["metadata"]["uid"] not in requested:
                    self.delete(item, propagation)
                    requested.add(item["metadata"]["uid"])
            # List once more after the limit: most objects are gone by then.
            late = time.monotonic() > end
            left = [item for kind in {self.kind_of(item) for item in left} for item in self.find(kind, labels)]
            if late:
                break
            time.sleep(0.2 if left else 0)
        return left

    # ---- kinds --------------------------------------------------------------------------------------------------

    def kind(self, api_version: str, kind: str) -> Kind:
        """Return a kind as it is served ("apps/v1", "StatefulSet"); `NotFound` if the cluster does not serve it."""
        if (api_version, kind) not in self._kinds:
            with contextlib.suppress(NotFound):
                self._kinds |= self._served(api_version)
        if (api_version, kind) not in self._kinds:
            raise NotFound(f"find the kind {kind} of {api_version}", "the cluster does not serve it")
        return self._kinds[api_version, kind]

    def _served(self, api_version: str) -> dict[tuple[str, str], Kind]:
        request = Request(f"ask the cluster what it serves of {api_version}", "GET", _group(api_version))
        listed = self.ask(request)["resources"]
        resources = [item for item in listed if "/" not in item["name"]]
        kinds = [Kind(api_version, item["kind"], item["name"], item["namespaced"]) for item in resources]
        return {(api_version, item.kind): item for item in kinds}

    def kind_of(self, item: Object) -> Kind:
        return self.kind(item["apiVersion"], item["kind"])

    def serves(self, api_version: str, kind: str) -> bool:
        """Return whether the cluster serves this kind."""
        try:
            self.kind(api_version, kind)
        except NotFound:
            return False
        return True

    def may(self, verb: str, kind: Kind, name: str = "", account: tuple[str, Sequence[str]] | None = None) -> bool:
        """Return whether we may do this with objects of a kind, or with the named one, in our namespace.

        `account`: ask for another user, by its name and groups; `Forbidden` without the right to ask.
        """
        group, (plural, _, sub) = kind.api_version.rpartition("/")[0].partition("/")[0], kind.plural.partition("/")
        attributes = {"verb": verb, "group": group, "resource": plural, **({"name": name} if name else {})}
        attributes |= {
            **({"subresource": sub} if sub else {}),
            **({"namespace": self.namespace} if kind.namespaced else {}),
        }
        api = "authorization.k8s.io/v1"
        review, at, who = "SelfSubjectAccessReview", "", "we"
        spec: Object = {"resourceAttributes": attributes}
        if account:
            review, at, who = "LocalSubjectAccessReview", f"/namespaces/{quote(self.namespace)}", account[0]
            spec |= {"user": account[0], "groups": list(account[1])}
        meta = {"metadata": {"namespace": self.namespace}} if account else {}
        body = {"apiVersion": api, "kind": review, **meta, "spec": spec}
        path = f"/apis/{api}{at}/{review.lower()}s"
        answer = self.ask(Request(f"ask whether {who} may {verb} {kind.plural}", "POST", path, body=body))
        return bool(answer["status"].get("allowed"))

    def path_of(self, kind: Kind, name: str = "", namespace: str | None = None) -> str:
        """Return the API path of a kind, or of one object."""
        at = f"/namespaces/{quote(namespace or self.namespace)}" if kind.namespaced else ""
        return f"{_group(kind.api_version)}{at}/{kind.plural}" + (f"/{quote(name)}" if name else "")


def _group(api_version: str) -> str:
    """Return the API path of a group; the core group has no name."""
    return f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"


def selector(labels: Mapping[str, str]) -> str:
    """Return the selector of objects that have all of these labels."""
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))


def name_of(item: Object) -> str:
    """Return kind and name, as in "Pod nccl-0"."""
    return f"{item['kind']} {item['metadata']['name']}"
