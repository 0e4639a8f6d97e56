"""The reason in DKMS's logs for a module that was not built."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.host import Host
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.resources import dkms_log

OLDER = "/var/lib/dkms/efa/2.17.2/build/make.log"
NEWER = "/var/lib/dkms/nvidia/580.178.04/build/make.log"


def put(root: Path, path: str, text: str, at: float) -> None:
    target = root / path[1:]
    target.parent.mkdir(parents=True)
    target.write_text(text)
    os.utime(target, (at, at))


@pytest.mark.parametrize(
    ("log", "shown"),
    [
        ("CC a.o\na.c:1: error: no member\nb.c:2: error: other\nmake: *** [a.o] Error 1\n", "a.c:1: error: no member"),
        ('MODPOST\nERROR: modpost: "f" undefined!\nmake: *** [all] Error 2\n', 'ERROR: modpost: "f" undefined!'),
        ("cc1: fatal error: Killed signal terminated program cc1\n", "cc1: fatal error: Killed signal terminated"),
        ("make[1]: *** /lib/modules/6.1/build: No such file or directory.  Stop.\n", "make[1]: *** /lib/modules/6.1/"),
        ("make: *** [modules] Error 2\nmake: *** [all] Error 2\n", "make: *** [modules] Error 2"),
    ],
)
def test_the_first_error_of_the_newest_log_is_shown(tmp_path: Path, log: str, shown: str) -> None:
    put(tmp_path, OLDER, "a.c:9: error: of an earlier build\n", 500)
    put(tmp_path, NEWER, log, 1000)
    reason = dkms_log.reason(Host(tmp_path), since=1000)
    assert reason.startswith(f"; DKMS: {shown}")
    assert reason.endswith(f" ({NEWER})")


def test_a_log_without_an_error_is_named(tmp_path: Path) -> None:
    put(tmp_path, NEWER, "CC a.o\n", 1000)
    assert dkms_log.reason(Host(tmp_path), since=999) == f"; see {NEWER}"


def test_a_log_of_an_earlier_build_and_no_log_give_no_reason(tmp_path: Path) -> None:
    assert dkms_log.reason(Host(tmp_path), since=0) == ""
    put(tmp_path, OLDER, "a.c:9: error: of an earlier build\n", 500)
    assert dkms_log.reason(Host(tmp_path), since=1000) == ""


def test_a_log_that_is_too_large_is_named_and_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, NEWER, "a.c:1: error: no member\n", 1000)
    monkeypatch.setattr(dkms_log, "MOST_BYTES", 8)
    assert dkms_log.reason(Host(tmp_path), since=1000) == f"; see {NEWER}"
