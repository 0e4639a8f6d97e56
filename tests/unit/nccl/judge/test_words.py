"""Sizes as people and as nccl-tests write them."""

from __future__ import annotations

from gpuctl.nccl import messages


def test_sizes_are_written_as_nccl_tests_takes_them() -> None:
    assert [messages.flag(size) for size in (8, 1 << 10, 1 << 26, 8 << 30, 1500)] == ["8", "1K", "64M", "8G", "1500"]


def test_sizes_are_written_as_people_read_them() -> None:
    assert [messages.size(size) for size in (8, 1 << 26, 8 << 30, 1000, 27380416513)] == [
        "8 B",
        "64 MiB",
        "8 GiB",
        "1000 B",
        "25.5 GiB",
    ]
