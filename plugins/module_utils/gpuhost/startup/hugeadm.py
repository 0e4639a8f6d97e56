"""hugeadm of libhugetlbfs: the kernel values that its options set, by hugeadm(8)."""

from __future__ import annotations

import re
from collections.abc import Iterator

COMMAND = re.compile(r"(?<![\w.-])hugeadm\b(?P<options>[^|;&#\n]*)")
OPTION = re.compile(r"--([a-z_-]+)(?:\s*=\s*|\s+)?[\"']?((?!-)[\w:+.-]*)")
DRY_RUN = re.compile(r"\s-d\b")
PAGE = re.compile(r"^Hugepagesize:\s*(\d+) kB$", re.MULTILINE)  # of /proc/meminfo
THP = "/sys/kernel/mm/transparent_hugepage"
UNKNOWN = "unknown"
# Options without a value of theirs. What hugeadm computes from the host's memory is not known here.
FIXED = {
    "thp-always": f"echo always > {THP}/enabled",
    "thp-madvise": f"echo madvise > {THP}/enabled",
    "thp-never": f"echo never > {THP}/enabled",
    "set-recommended-min_free_kbytes": "sysctl vm.min_free_kbytes=recommended",
    "set-recommended-shmmax": "sysctl kernel.shmmax=recommended",
}
SWAP = ("add-temp-swap", "add-ramdisk-swap")  # removed when hugeadm ends, but for --persist
WITH_VALUE = {
    "set-shm-group": "sysctl vm.hugetlb_shm_group={}",
    "thp-khugepaged-scan-sleep": f"echo {{}} > {THP}/khugepaged/scan_sleep_millisecs",
}
POOLS = ("pool-pages-min", "pool-pages-max")
# All long options: like every program with getopt_long, it takes the beginning of one for it, if there is only one.
OPTIONS = (
    *("help", "verbose", "hard", "pool-list", "explain", "dry-run", "persist", "obey-mempolicy"),
    *("list-all-mounts", "page-sizes", "page-sizes-all", "enable-zone-movable", "disable-zone-movable"),
    *("create-mounts", "create-user-mounts", "create-group-mounts", "create-global-mounts", "max-size", "max-inodes"),
    *("thp-khugepaged-pages", "thp-khugepaged-alloc-sleep"),
    *(*FIXED, *SWAP, *WITH_VALUE, *POOLS),
)
UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def page_size(meminfo: str) -> int | None:
    """The size (bytes) of the pages that vm.nr_hugepages counts, by /proc/meminfo; None if it is unknown."""
    match = PAGE.search(meminfo)
    return int(match[1]) << 10 if match else None


def with_equivalents(text: str, page: int | None) -> Iterator[str]:
    """A line, and for each value that a hugeadm in it sets, the line with the command that does the same.

    `page`: the size of the host's default huge pages.
    """
    yield text
    for command in COMMAND.finditer(text):
        options = [(_whole(name), value) for name, value in OPTION.findall(command["options"])]
        names = {name for name, _ in options}
        if DRY_RUN.search(command["options"]) or "dry-run" in names:
            continue
        for name, value in options:
            same = _equivalent(name, value, page)
            if name in SWAP and "persist" in names:
                same = "swapon"
            if same:
                yield f"{text} (= {same} )"


def _whole(name: str) -> str:
    """The name of a long option that may be abbreviated."""
    longer = [option for option in OPTIONS if option.startswith(name)]
    return longer[0] if len(longer) == 1 else name


def _equivalent(name: str, value: str, page: int | None) -> str:
    if name in FIXED:
        return FIXED[name]
    if name in WITH_VALUE:
        return WITH_VALUE[name].format(value)
    size, _, count = value.partition(":")
    if name not in POOLS or not _may_be_default(size, page):
        return ""
    if name == "pool-pages-max":  # it sets how many more than the minimum there may be
        return "sysctl vm.nr_overcommit_hugepages=computed"
    return f"sysctl vm.nr_hugepages={_pages(count, page)}"


def _may_be_default(size: str, page: int | None) -> bool:
    """True for the pool of the default pages, and for one that may be it."""
    number = _bytes(size)
    return size == "DEFAULT" or number is None or page is None or number == page


def _pages(count: str, page: int | None) -> str:
    """A number of pages, which may be given as memory; one that depends on the number before stays as it is."""
    if count and not count[-1].isalpha():
        return count
    size = _bytes(count)
    return UNKNOWN if size is None or page is None else str(size // page)


def _bytes(text: str) -> int | None:
    match = re.fullmatch(r"(\d+)([KMG]?)B?", text, re.IGNORECASE)
    return int(match[1]) * UNITS[match[2].upper()] if match else None
