"""What a stream of watch events comes to: the objects there are now."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuctl.kube.model import Pod, pod


class Objects:
    """Objects by uid, as the last events left them. A list takes the place of everything before it."""

    def __init__(self) -> None:
        self.known = False
        self.by_uid: dict[str, Mapping[str, Any]] = {}

    def take_in(self, kind: str, item: Mapping[str, Any]) -> None:
        """Take in an event of the stream."""
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
        """Whether this is no older than what is known: the watch begins before the list is read."""
        return _version(item) >= _version(self.by_uid.get(item["metadata"]["uid"], {}))


def _version(item: Mapping[str, Any]) -> int:
    text = str((item.get("metadata") or {}).get("resourceVersion", ""))
    return int(text) if text.isdigit() else 0


class Pods(Objects):
    """The same for pods."""

    @property
    def all(self) -> list[Pod]:
        return sorted((pod(item) for item in self.by_uid.values()), key=lambda p: p.name)
