"""Bind the memory of this process and its children to NUMA nodes, as `numactl --membind` does."""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Iterable

# set_mempolicy has no wrapper in the C library (libnuma has one, and may not be installed).
SET_MEMPOLICY = {"x86_64": 238, "aarch64": 237}
MPOL_BIND = 2
WORD = 8 * ctypes.sizeof(ctypes.c_ulong)


def bind_memory(nodes: Iterable[int]) -> None:
    """Allocate memory from these nodes only, also after exec and in children; OSError with the kernel's reason."""
    number = SET_MEMPOLICY.get(os.uname().machine)
    if number is None:
        raise OSError(errno.ENOSYS, f"the number of set_mempolicy is not known for {os.uname().machine}")
    mask = mask_of(nodes)
    array = (ctypes.c_ulong * len(mask))(*mask)
    # The kernel reads one bit less than `maxnode`.
    bits = ctypes.c_ulong(len(mask) * WORD + 1)
    if ctypes.CDLL(None, use_errno=True).syscall(ctypes.c_long(number), MPOL_BIND, array, bits) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def mask_of(nodes: Iterable[int]) -> list[int]:
    """Node numbers as the kernel's bit mask: machine words, lowest first."""
    numbers = set(nodes)
    count = max(numbers) // WORD + 1
    return [sum(1 << n % WORD for n in numbers if n // WORD == word) for word in range(count)]
