"""The current objects of a watch, built from its event stream."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuctl.kube.model import Pod, pod


class Objects:
    """Objects by uid after the last event; a LIST event replaces all of them."""

    def __init__(self) -> None:
        self.known = False
        self.by_uid: dict[str, Mapping[str, Any]] = {}

    def apply(self, kind: str, item: Mapping[str, Any]) -> None:
        """Apply a watch event."""
        if kind == "LIST":
            self.known = True
            self.by_uid = {item["metadata"]["uid"]: item for item in item.get("items") or ()}
            return
        uid = (item.get("metadata") or {}).get("uid")
        if uid is None:
            return
        if kind == "DELETED":
            self.by_uid.pop(uid, None)
        elif kind in ("ADDED", "MODIFIED") and self.is_newer(item):
            self.by_uid[uid] = item

    def is_newer(self, item: Mapping[str, Any]) -> bool:
        """True unless a newer version is known: the watch starts before the list is read."""
        return _version(item) >= _version(self.by_uid.get(item["metadata"]["uid"], {}))


def _version(item: Mapping[str, Any]) -> int:
    text = str((item.get("metadata") or {}).get("resourceVersion", ""))
    return int(text) if text.isdigit() else 0


class Pods(Objects):
    """The pods of a watch."""

    @property
    def all(self) -> list[Pod]:
        return sorted((pod(item) for item in self.by_uid.values()), key=lambda p: p.name)
