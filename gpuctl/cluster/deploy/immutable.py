"""Immutable fields of objects, and sizes of claim templates, which change by replacing the StatefulSet alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gpuctl.cluster.deploy.model import Field, ObjectState
from gpuctl.cluster.environment import Object
from gpuctl.cluster.manifests import FIXED
from gpuctl.domain.quantity import amount

TEMPLATES = "volumeClaimTemplates"


def fixed(desired: Object, live: Object) -> tuple[Field, ...]:
    """Return the immutable fields that would have to change."""
    before, after = live.get("spec") or {}, desired.get("spec") or {}
    return tuple(
        Field(f"spec.{name}", before.get(name), after.get(name))
        for name in FIXED.get(desired["kind"], ())
        if not covers(before.get(name), after.get(name))
    )


def covers(live: Any, desired: Any) -> bool:
    """Return True if the live value contains the desired one; the server adds fields and normalizes quantities."""
    if isinstance(desired, Mapping) and isinstance(live, Mapping):
        return all(name in live and covers(live[name], value) for name, value in desired.items())
    if isinstance(desired, list) and isinstance(live, list):
        return len(desired) == len(live) and all(map(covers, live, desired))
    number = amount(desired) if isinstance(desired, str) else None
    return bool(live == desired or (number is not None and number == amount(live)))


def template_sizes(desired: Object, live: Object | None) -> tuple[Field, ...]:
    """Return the sizes of claim templates that change; () if none does, or another immutable field changes, too."""
    if live is None or not fixed(desired, live) or fixed(_sized_as(desired, live), live):
        return ()
    before, after = _sizes(live), _sizes(desired)
    path = f"spec.{TEMPLATES}[{{}}].spec.resources.requests.storage"
    return tuple(
        Field(path.format(name), before[name], after[name]) for name in after if not covers(before[name], after[name])
    )


def with_live_sizes(state: ObjectState) -> ObjectState:
    """Return the state with the live sizes of claim templates as the desired ones."""
    return replace(state, desired=_sized_as(state.desired, state.live or {}))


def _sized_as(desired: Object, live: Object) -> Object:
    sizes = _sizes(live)
    templates = [
        {
            **template,
            "spec": {
                **template["spec"],
                "resources": {"requests": {"storage": sizes.get(name, size)}},
            },
        }
        for template, (name, size) in zip(_templates(desired), _sizes(desired).items(), strict=True)
    ]
    return {**desired, "spec": {**desired["spec"], TEMPLATES: templates}} if templates else desired


def _sizes(obj: Object) -> dict[str, str]:
    return {
        template["metadata"]["name"]: str(template["spec"]["resources"]["requests"]["storage"])
        for template in _templates(obj)
    }


def _templates(obj: Object) -> list[Object]:
    return (obj.get("spec") or {}).get(TEMPLATES) or []
