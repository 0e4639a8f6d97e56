"""Existing volumes of claim templates: they grow where the storage class allows it, without ending pods."""

from __future__ import annotations

from collections.abc import Sequence

from gpuctl.cluster.deploy.model import Change, DryRun, Field, ObjectState, is_ours, is_terminating
from gpuctl.cluster.environment import Environment, Object
from gpuctl.cluster.manifests import storage
from gpuctl.core.abandonable_pool import AbandonablePool
from gpuctl.core.errors import GpuctlError, Unreachable
from gpuctl.domain.findings import Finding, Verdict
from gpuctl.domain.quantity import amount

SIZE = "spec.resources.requests.storage"
AT_ONCE = 8
Planned = tuple[list[Change], list[Finding]]


def size_of(claim: Object) -> str:
    """Return the size that a claim requests."""
    return str(claim["spec"]["resources"]["requests"]["storage"])


def is_smaller(size: str, desired: str) -> bool:
    """Return True if a size is known to be smaller than another."""
    number, wanted = amount(size), amount(desired)
    return number is not None and wanted is not None and number < wanted


def too_small(env: Environment, claims: Sequence[Object]) -> list[ObjectState]:
    """Return the claims of templates that request less than the file says, also those of pods that were removed.

    The desired object has the size alone: it is patched.
    """
    return [
        ObjectState(_patch(claim, size), claim)
        for claim in claims
        if is_ours(env, claim)
        and not is_terminating(claim)
        and (size := storage.template_size(env, claim["metadata"]["name"]))
        and is_smaller(size_of(claim), size)
    ]


def _patch(claim: Object, size: str) -> Object:
    meta = {name: claim["metadata"][name] for name in ("name", "namespace")}
    spec = {"resources": {"requests": {"storage": size}}}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": spec}


def changes(dry_run: DryRun, states: Sequence[ObjectState]) -> Planned:
    """Return the growth of each claim, and a finding for each that the server refuses to grow."""
    with AbandonablePool(AT_ONCE) as pool:
        planned = list(pool.map(lambda state: _change(dry_run, state), states))
    return [item for item in planned if isinstance(item, Change)], [
        item for item in planned if isinstance(item, Finding)
    ]


def _change(dry_run: DryRun, state: ObjectState) -> Change | Finding:
    before, after = size_of(state.live or {}), size_of(state.desired)
    try:
        dry_run(state.desired, force=True)
    except Unreachable:
        raise
    except GpuctlError as error:
        message = f"it stays at {before}, and the file says {after}: {error.wrong}"
        hint = "a StorageClass allows growth by allowVolumeExpansion: true; new pods get volumes of the new size"
        return Finding("volumes", state.subject, Verdict.WARN, message, hint=hint)
    return Change(state.desired["kind"], state.desired["metadata"]["name"], "grow", (Field(SIZE, before, after),))
