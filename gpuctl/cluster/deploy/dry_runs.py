"""Ask the server for the change of every object, several at once."""

from __future__ import annotations

from collections.abc import Sequence

from gpuctl.cluster.deploy.diff import change, with_sizes
from gpuctl.cluster.deploy.immutable import template_sizes, with_live_sizes
from gpuctl.cluster.deploy.model import Change, DryRun, ObjectState
from gpuctl.cluster.environment import Environment
from gpuctl.core.abandonable_pool import AbandonablePool

AT_ONCE = 8


def changes(dry_run: DryRun, env: Environment, states: Sequence[ObjectState]) -> list[Change]:
    """Return one change per object, determined by `dry_run`, which runs concurrently for several objects."""
    new = {state.subject for state in states if state.live is None}

    def one(state: ObjectState) -> Change:
        sizes = template_sizes(state.desired, state.live)
        # The server does not change sizes of claim templates: it is asked about the rest.
        tried = with_live_sizes(state) if sizes else state
        return with_sizes(change(env, tried, dry_run, new), sizes)

    with AbandonablePool(AT_ONCE) as pool:
        return list(pool.map(one, states))
