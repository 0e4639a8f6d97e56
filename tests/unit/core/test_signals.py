"""Ctrl-C is caught inside a block."""

from __future__ import annotations

import signal

from gpuctl.core.signals import ctrl_c


def test_ctrl_c_is_caught_and_reported() -> None:
    before = signal.getsignal(signal.SIGINT)
    with ctrl_c() as broken_off:
        assert not broken_off()
        signal.raise_signal(signal.SIGINT)
        assert broken_off()
    assert signal.getsignal(signal.SIGINT) is before
