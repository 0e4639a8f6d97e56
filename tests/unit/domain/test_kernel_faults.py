"""Kernel messages: which are a fault, and which are another's words for one."""

from __future__ import annotations

import pytest

from gpuctl.domain import kernel_faults
from gpuctl.domain.findings import Verdict


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("BUG: unable to handle page fault for address: ffffffffc0a1b2c3", "lockup"),
        ("Oops: 0002 [#1] SMP", "lockup"),
        ("general protection fault, probably for non-canonical address 0xdead: 0000 [#1]", "lockup"),
        ("Unable to handle kernel NULL pointer dereference at virtual address 0000000000000008", "lockup"),
        ("NVRM: GPU 0000:4b:00.0: RmInitAdapter failed! (0x62:0x40:2477)", "gpu-driver"),
        ("nvidia 0000:4b:00.0: probe with driver nvidia failed with error -1", "gpu-driver"),
        ("NVRM: _kgspLogXid119: ********************************* GSP Timeout **********************", "gsp-timeout"),
        ("traps: python3[4711] general protection fault ip:7f11 sp:7ffd error:0 in libc.so.6", ""),
        ("nvidia: loading out-of-tree module taints kernel.", ""),
        ("debugfs: Directory 'BUGS' with parent '/' already present!", ""),
    ],
)
def test_a_line_is_a_fault_of_its_kind_or_none(line: str, name: str) -> None:
    found = kernel_faults.find([f"[  201.650687] {line}"], "n1")
    assert [list(one.numbers) for one in found] == ([[f"{name}_lines"]] if name else [])
    assert all(one.verdict is Verdict.FAIL for one in found)


def test_a_timeout_of_the_firmware_beside_its_xid_is_one_fault() -> None:
    timeout = "NVRM: _kgspLogXid119: ****** GSP Timeout ******"
    xid = "NVRM: Xid (PCI:0000:4b:00): 119, pid=1, Timeout after 6s of waiting for RPC response"
    assert len(kernel_faults.find([timeout], "n1")) == 1
    assert kernel_faults.find([timeout, xid], "n1") == []
