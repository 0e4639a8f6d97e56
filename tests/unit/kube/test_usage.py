"""Usage of pods over time, from the output of `kubectl top pods --no-headers` (kubectl 1.36)."""

from __future__ import annotations

import pytest

from gpuctl.core.errors import GpuctlError
from gpuctl.kube.usage import SAMPLES, Usage, graph


def test_each_pod_has_its_current_and_highest_usage_the_largest_first() -> None:
    usage = Usage()
    usage.add("web-0       250m   100Mi\ntrainer-0   12000m   65536Mi\n")
    usage.add("web-0       1m     100Mi\ntrainer-0   6000m    32768Mi\n")
    assert [line.split() for line in usage.table().splitlines()[1:]] == [
        ["trainer-0", "6000m", "12000m", "█▅", "32768Mi", "65536Mi", "█▅"],
        ["web-0", "1m", "250m", "█▁", "100Mi", "100Mi", "██"],
    ]


def test_a_pod_that_is_gone_is_dropped_and_one_that_returns_begins_again() -> None:
    usage = Usage()
    for text in ("a 9m 9Mi\nb 1m 1Mi\n", "b 1m 1Mi\n", "a 3m 3Mi\n"):
        usage.add(text)
    assert usage.table().splitlines()[1].split() == ["a", "3m", "3m", "█", "3Mi", "3Mi", "█"]


def test_the_graph_shows_the_last_samples() -> None:
    usage = Usage()
    for number in range(SAMPLES + 5):
        usage.add(f"a {number}m 0Mi")
    assert len(usage.table().splitlines()[1].split()[3]) == SAMPLES
    assert graph([0, 0], 0) == "▁▁"


def test_a_line_that_cannot_be_read_is_an_error() -> None:
    with pytest.raises(GpuctlError, match="'a <unknown> 3Mi' is not a pod"):
        Usage().add("a <unknown> 3Mi")
