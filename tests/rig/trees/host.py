"""Small host trees for unit tests: plain files, and stand-ins for the programs that the engine runs."""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from types import CodeType
from typing import Any

from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.api import visit
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.host import Host, Result

# Keeps unit states in a file of the tree, and answers the engine's few queries to systemd.
STANDIN_SYSTEMCTL = Path(__file__).with_name("standin_systemctl.py")


class TreeHost(Host):
    """A host in a folder whose /proc and /sys files behave like the kernel's: a choice moves its brackets.

    Stand-ins written in Python run in this process: hundreds of interpreters would take most of the tests' time.
    """

    def _run(self, argv: Sequence[str], stdin: str, limit: float, added: Mapping[str, str], changes: bool) -> Result:
        program = self.which(argv[0])
        code = None if program is None else _python(program)
        if program is None or code is None:
            return super()._run(argv, stdin, limit, added, changes)
        return _in_this_process(code, [program, *argv[1:]], {"GPUCTL_ROOT": self.root, **added}, stdin)

    def write(self, path: str, text: str) -> None:
        before = self.read(path)
        super().write(
            path,
            before.replace("[", "").replace("]", "").replace(text, f"[{text}]", 1) if "[" in before else f"{text}\n",
        )


def _python(program: str) -> CodeType | None:
    """The compiled text of a Python script; None for any other program."""
    text = Path(program).read_bytes()
    return _compiled(text) if text.startswith(b"#!") and b"python" in text.splitlines()[0] else None


@lru_cache(maxsize=64)
def _compiled(text: bytes) -> CodeType:
    return compile(text, "stand-in", "exec")


def _in_this_process(code: CodeType, argv: list[str], environment: Mapping[str, str], stdin: str) -> Result:
    before = dict(os.environ), sys.argv, sys.stdin
    out, err = io.StringIO(), io.StringIO()
    exit_code: object = 0
    try:
        os.environ.update(environment)
        sys.argv, sys.stdin = argv, io.StringIO(stdin)
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            exec(code, {"__name__": "__main__"})  # noqa: S102
    except SystemExit as end:
        exit_code = end.code or 0
    except Exception:  # noqa: BLE001 - an interpreter would end with it
        exit_code = traceback.format_exc().rstrip()
    finally:
        os.environ.clear()
        os.environ.update(before[0])
        sys.argv, sys.stdin = before[1:]
    if isinstance(exit_code, int):
        return Result(exit_code, out.getvalue(), err.getvalue())
    return Result(1, out.getvalue(), f"{err.getvalue()}{exit_code}\n")


class Counting(TreeHost):
    """Counts the programs that it starts."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.started: list[str] = []

    def _run(self, argv: Any, *more: Any) -> Any:
        self.started.append(" ".join(argv))
        return super()._run(argv, *more)


def put(root: Path, path: str, text: str, mode: int = 0o644) -> None:
    """Write one file of a tree, with its folders."""
    real = root / path.lstrip("/")
    real.parent.mkdir(parents=True, exist_ok=True)
    real.write_text(text)
    real.chmod(mode)


# The start of a stand-in that tests run by the hundred: neither site nor pathlib, which take most of its time. Its
# functions take paths below the root.
QUICK_PROGRAM = f"""#!{sys.executable} -IS
import os, sys
root = os.environ["GPUCTL_ROOT"]
def exists(path):
    return os.path.exists(f"{{root}}/{{path}}")
def read(path):
    with open(f"{{root}}/{{path}}") as stream:
        return stream.read()
def write(path, text, mode="w"):
    with open(f"{{root}}/{{path}}", mode) as stream:
        stream.write(text)
def remove(path):
    if exists(path):
        os.unlink(f"{{root}}/{{path}}")
"""


def program(root: Path, name: str, script: str = "#!/bin/sh\nexit 0\n") -> None:
    """Put a stand-in program on the tree's PATH."""
    put(root, f"/usr/bin/{name}", script, 0o755)


def units(root: Path, **states: dict[str, str]) -> None:
    """Give the tree a stand-in systemctl; each unit is `name={"boot": "enabled", "now": "active"}` (. as __)."""
    put(
        root,
        "/run/standin-units.json",
        json.dumps({name.replace("__", "."): s for name, s in states.items()}),
    )
    # A tree's programs have only the tree's PATH, so the stand-in names its interpreter.
    program(root, "systemctl", STANDIN_SYSTEMCTL.read_text().replace("/usr/bin/env python3", sys.executable, 1))
    for name, state in states.items():
        unit = name.replace("__", ".")
        if state.get("boot") == "enabled":
            link(root, f"/etc/systemd/system/multi-user.target.wants/{unit}", f"../{unit}")
        if state.get("now") == "active":
            link(root, f"/run/systemd/units/invocation:{unit}", "0123456789abcdef")


def link(root: Path, path: str, target: str) -> None:
    """Make a symbolic link in a tree, with its folders."""
    real = root / path.lstrip("/")
    real.parent.mkdir(parents=True, exist_ok=True)
    real.symlink_to(target)


def small_server(root: Path) -> Path:
    """A virtual Debian host with a few kernel files, for the parts of the engine that all kinds share."""
    put(root, "/etc/os-release", 'ID=debian\nVERSION_ID="12"\n')
    put(root, "/proc/cpuinfo", "flags : fpu hypervisor\n")
    put(root, "/proc/cmdline", "BOOT_IMAGE=/boot/vmlinuz root=/dev/sda1 ro quiet\n")
    put(root, "/proc/sys/kernel/random/boot_id", "0b5b0f4e-5a0c-4f43-8a43-2e3a3a3f1c11\n")
    for key, value in {"swappiness": "60", "max_map_count": "65530", "zone_reclaim_mode": "0"}.items():
        put(root, f"/proc/sys/vm/{key}", f"{value}\n")
    put(root, "/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n")
    units(root)
    program(root, "udevadm")
    return root


def tune(root: Path, knobs: dict[str, Any], host: Host | None = None, **options: Any) -> dict[str, Any]:
    """One visit with a profile of these knobs."""
    rows = [{"name": name, "value": value, "why": "test", "source": "test"} for name, value in knobs.items()]
    request = {"action": "tune", "profile": {"name": "test", "knobs": rows}, "actor": "tester", **options}
    return visit(request, host or TreeHost(root))


def undo(root: Path, host: Host | None = None, **options: Any) -> dict[str, Any]:
    """One visit that undoes changes."""
    return visit({"action": "undo", "actor": "tester", **options}, host or TreeHost(root))


def states(answer: dict[str, Any]) -> dict[str, str]:
    """Knob -> state."""
    return {knob["knob"]: knob["state"] for knob in answer["knobs"]}


def changed(answer: dict[str, Any]) -> set[str]:
    """The knobs that a run changed, or would change in check mode."""
    return {k["knob"] for k in answer["knobs"] if k["changed"] or k["state"] == "differs"}


def content(root: Path) -> dict[str, str]:
    """Every file of a tree with its text, without gpuctl's records and lock."""
    return {
        str(path.relative_to(root)): path.read_text()
        for path in sorted(root.rglob("*"))
        if path.is_file()
        and not path.is_relative_to(root / "var/lib/gpuctl")
        and not path.is_relative_to(root / "run/gpuctl")
    }
