"""Which program a terminal shows is read off the process table."""

from __future__ import annotations

from pathlib import Path

from gpuctl.tmux.foreground import programs

# ps -A -o pid=,pgid=,tpgid=,tty=,args= of procps 4.0.2
TABLE = """\
      1       1      -1 ?        /sbin/init
      9       0      -1 ?
    812     812     840 pts/0    -bash
    840     840     840 pts/0    htop -d 10
    813     813     813 pts/1    /bin/bash --norc
    814     814     850 pts/2    bash
    850     850     850 pts/2    node /usr/local/bin/claude --continue
    815     815     860 pts/3    bash
    860     860     860 pts/3    less notes of today
    861     860     860 pts/3    less helper
"""


def test_only_allowed_foreground_programs_are_returned(tmp_path: Path) -> None:
    assert programs(TABLE, ["htop", "claude"], tmp_path) == {
        "/dev/pts/0": ("htop", "-d", "10"),
        "/dev/pts/2": ("claude", "--continue"),
    }


def test_arguments_are_exact_if_proc_has_them(tmp_path: Path) -> None:
    (tmp_path / "860").mkdir()
    (tmp_path / "860/cmdline").write_bytes(b"/usr/bin/less\0notes of today\0")
    assert programs(TABLE, ["less"], tmp_path) == {"/dev/pts/3": ("less", "notes of today")}
