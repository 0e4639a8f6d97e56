"""hugeadm of libhugetlbfs: the kernel values that its options set, by hugeadm(8)."""

from __future__ import annotations

import re
from collections.abc import Iterator

COMMAND = re.compile(r"(?<![\w.-])hugeadm\b(?P<options>[^|;&#\n]*)")
OPTION = re.compile(r"--([a-z_-]+)(?:\s*=\s*|\s+)?[\"']?((?!-)[\w:+.-]*)")
DRY_RUN = re.compile(r"\s(?:--dry-run|-d)\b")
THP = "/sys/kernel/mm/transparent_hugepage"
# Options without a value of theirs. What hugeadm computes from the host's memory is not known here.
FIXED = {
    "thp-always": f"echo always > {THP}/enabled",
    "thp-madvise": f"echo madvise > {THP}/enabled",
    "thp-never": f"echo never > {THP}/enabled",
    "set-recommended-min_free_kbytes": "sysctl vm.min_free_kbytes=recommended",
    "set-recommended-shmmax": "sysctl kernel.shmmax=recommended",
    "pool-pages-max": "sysctl vm.nr_overcommit_hugepages=computed",
    "add-temp-swap": "swapon",
    "add-ramdisk-swap": "swapon",
}
WITH_VALUE = {
    "set-shm-group": "sysctl vm.hugetlb_shm_group={}",
    "thp-khugepaged-scan-sleep": f"echo {{}} > {THP}/khugepaged/scan_sleep_millisecs",
}
UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
PAGE = 2 << 20  # the size of the pages that vm.nr_hugepages counts


def with_equivalents(text: str) -> Iterator[str]:
    """A line, and for each value that a hugeadm in it sets, the line with the command that does the same."""
    yield text
    for command in COMMAND.finditer(text):
        if not DRY_RUN.search(command["options"]):
            for name, value in OPTION.findall(command["options"]):
                same = _equivalent(name, value)
                if same:
                    yield f"{text} (= {same} )"


def _equivalent(name: str, value: str) -> str:
    if name in FIXED:
        return FIXED[name]
    if name in WITH_VALUE:
        return WITH_VALUE[name].format(value)
    if name != "pool-pages-min":
        return ""
    size, _, count = value.partition(":")
    return f"sysctl vm.nr_hugepages={_pages(count)}" if size == "DEFAULT" or _bytes(size) == PAGE else ""


def _pages(count: str) -> str:
    """A number of pages, which may be given as memory; one that depends on the number before stays as it is."""
    if not count[-1:].isalpha():
        return count
    size = _bytes(count)
    return count if size is None else str(size // PAGE)


def _bytes(text: str) -> int | None:
    match = re.fullmatch(r"(\d+)([KMG]?)B?", text, re.IGNORECASE)
    return int(match[1]) * UNITS[match[2].upper()] if match else None
