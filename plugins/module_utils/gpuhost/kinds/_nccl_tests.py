"""The part nccl_tests of the stack: a build for the GPUs of the host, or the check of the site's folder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .. import nccl_tests
from ..model import Knob, Reading, Refused, Step
from ..resources.nccl_tests import SETTING
from ..snapshot import HostSnapshot
from ._common import settled


def read(snapshot: HostSnapshot, knob: Knob, row: Mapping[str, Any]) -> Reading:
    """State of the tests. `row`: `folder` of the site, or `version`, `sha256` and `uri` of the archive to build."""
    host = snapshot.host
    if row.get("folder"):
        version, wrong = nccl_tests.prove(host, row["folder"])
        if wrong:
            raise Refused(wrong)
        steps = snapshot.step(SETTING, None) if SETTING in snapshot.owned else ()
        return settled(knob, now=f"{row['folder']}, {version or 'no version in its help'}", steps=steps)
    now = nccl_tests.read(host)
    compute = nccl_tests.compute_capabilities(snapshot.unchanging)
    desired = nccl_tests.Build(row["version"], compute, row["sha256"], row["uri"])
    knob = knob._replace(value=desired.shown)
    if now.build and now.build.fits(desired.version, compute, desired.sha256) and not now.wrong:
        return settled(knob, now=now.build.shown)
    _, lacks = nccl_tests.toolchain(host, compute)
    if lacks:
        raise Refused("; ".join(lacks))
    notes = [now.wrong] if now.wrong else []
    if now.build and not now.wrong:
        notes.append(f"a rollback to it builds {now.build.shown} again, if {now.build.uri} still has it")
    shown = now.build.shown if now.build else nccl_tests.INCOMPLETE if now.wrong else "absent"
    shown += f", {nccl_tests.DAMAGED}" if now.wrong else ""
    before = now.build.text if now.build else None
    # A damaged build is recorded as whole, so that a rollback to it makes it again.
    step = Step(SETTING, now.text if before == desired.text else before, desired.text)
    return settled(knob, now=shown, steps=(step,), notes=tuple(notes))
