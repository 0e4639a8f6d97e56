"""Any profile file is loaded, or refused with places; none crashes the reader."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as some

from tests.rig.profile_files import mistakes

WHOLE = """\
about: a profile
extends: minimal
drop: [limits.nofile]
knobs:
  sysctl.vm.swappiness: {value: 0, why: a, source: b}
  thp.enabled:
    value: never
    why: a
    source: b
overlays:
  - name: one
    why: a
    when: {machine: [virtual], gpus: "*H100*"}
    knobs: {thp.enabled: always}
"""
JUNK = some.sampled_from([*"[]{}:-,&*!|>'\"%@`\t\n #~?\x00\ufeff", "<<", "!!int ", "---\n", "null", "  "])
CUTS = some.lists(some.tuples(some.integers(0, len(WHOLE)), some.integers(0, 12), JUNK), max_size=3)


@settings(max_examples=300, deadline=None)
@given(CUTS)
def test_a_damaged_profile_is_loaded_or_refused_with_places(cuts: list[tuple[int, int, str]]) -> None:
    text = WHOLE
    for start, length, junk in cuts:
        text = text[:start] + junk + text[start + length :]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "mine.yml"
        path.write_text(text)
        assert all(re.match(r"\S+: \S", mistake) for mistake in mistakes(path))
