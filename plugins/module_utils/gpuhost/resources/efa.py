"""EFA's software: "efa:installer", text "1.48.0 full" or "1.48.0 minimal"; None if nothing of it is installed.

AWS's own installer does the work, from a verified archive. It is not atomic: what it leaves when it fails is called
half-installed, and the next run repairs it. An older version, or a smaller one, is installed after its uninstaller.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager

from ..efa import source, state
from ..efa.state import State
from ..host import Host, Result
from ..model import Step, Unreadable
from ..unpack import BadArchive
from . import deb

SETTING = "efa:installer"
FOLDER = "/var/lib/gpuctl"
WORK = f"{FOLDER}/efa-work"
KEPT = f"{FOLDER}/efa-uninstaller"  # scripts of the installer, so that an undo needs no archive
LOG = "/var/log/gpuctl-efa-installer.log"
LIMIT_S = 5400.0  # DKMS builds modules for every kernel of the host
SCRIPT_BYTES = 1 << 20
AS_BEFORE = "EFA is as before"  # ends the error of a run that has changed nothing of it
TRIES, PAUSE_S = 3, 5.0  # devices of a p5en may appear late


class Efa:
    """The only one; its name is "installer"."""

    def __init__(self, name: str) -> None:
        self.name = name

    def read(self, host: Host) -> str | None:
        return state.read(host).text

    def write(self, host: Host, text: str | None) -> None:
        now = state.read(host)
        if text is None:
            _remove(host, now)
            return
        version, _, kind = text.partition(" ")
        minimal = kind == "minimal"
        if now.half or (now.version, now.minimal) != (version, minimal):
            _install(host, now, version, minimal=minimal)
        _build_modules(host)
        _check(host, text)
        _await_devices(host, minimal=minimal)


def _install(host: Host, now: State, version: str, *, minimal: bool) -> None:
    from ..efa import archive  # slow to load, as is shutil, and needed by few visits

    with _workplace(host) as folder:
        try:
            root = archive.obtain(host, source.read(host), version, folder)
        except (BadArchive, Unreadable) as error:
            raise RuntimeError(f"EFA's installer {version} cannot be used: {error}; {AS_BEFORE}") from error
        if _must_go_first(now, version, minimal=minimal):
            _run(host, root, now, "--uninstall", "--yes")
        options = ("--minimal",) if minimal else ()
        # Its own test of the device is left out, as gpuctl proves more afterwards.
        _run(host, root, now, "--yes", "--no-verify", *options)
        _keep_scripts(host, root)


def _must_go_first(now: State, version: str, *, minimal: bool) -> bool:
    """The installer skips packages of which a newer version is there, and records the older one all the same."""
    if not now.version:
        return False
    return state.number(now.version) > state.number(version) or (minimal and not now.minimal) or bool(now.half)


@contextmanager
def _workplace(host: Host) -> Iterator[str]:
    """A private folder on disk, as the archive is large; that of a killed run is removed first."""
    import shutil

    real = host.real(WORK)
    with host.changing(f"create {WORK}"):
        shutil.rmtree(real, ignore_errors=True)
        host.make_private_folder(WORK)
    try:
        yield real
    finally:
        shutil.rmtree(real, ignore_errors=True)


def _run(host: Host, root: str, before: State, *options: str) -> None:
    """Run the installer in its own folder, as it wants; RuntimeError with what it leaves."""
    argv = ("env", "-C", root, "bash", f"./{source.SCRIPT}", *options)
    done = host.run(*argv, changes=True, limit=LIMIT_S)
    if done.ok:
        return
    host.replace(LOG, f"{done.out}\n{done.err}\n", mode=0o600)
    left = state.read(host)
    verb = "uninstaller" if "--uninstall" in options else "installer"
    if left == before and not left.half:
        raise RuntimeError(f"EFA's {verb} failed: {_reason(done)}; see {LOG}; {AS_BEFORE}")
    is_half = f"half installed ({'; '.join(left.half)})" if left.half else f"{left.text or 'absent'}"
    raise RuntimeError(
        f"EFA's {verb} failed: {_reason(done)}; EFA is now {is_half}: the next run repairs it; see {LOG}"
    )


def _reason(done: Result) -> str:
    """Errors of the installer, which explains itself on either stream, or of apt; else the last line."""
    lines = re.findall(r"^(?:Error|E): (.*)$", f"{done.err}\n{done.out}", re.MULTILINE)
    return "; ".join(dict.fromkeys(lines[:3])) or done.last_line


def _keep_scripts(host: Host, root: str) -> None:
    import shutil

    with host.changing(f"keep {KEPT}"):
        real = host.real(KEPT)
        shutil.rmtree(real, ignore_errors=True)
        host.make_private_folder(KEPT)
        for entry in os.scandir(root):
            if entry.is_file(follow_symlinks=False) and entry.stat().st_size <= SCRIPT_BYTES:
                shutil.copy2(entry.path, real)


def _build_modules(host: Host) -> None:
    """Let DKMS build what is missing for the running kernel, or does not fit NVIDIA's module."""
    now = state.read(host)
    kernel = host.value("/proc/sys/kernel/osrelease") or ""
    if not now.unbuilt or now.half or not host.which("dkms"):
        return
    for name, version in now.aws:
        module = name.removesuffix("-dkms")
        if any(module.replace("-", "_") in reason.split() for reason in now.unbuilt):
            upstream = version.partition("-")[0]
            for verb in ("build", "install"):
                host.run("dkms", verb, "--force", f"{module}/{upstream}", "-k", kernel, changes=True, limit=LIMIT_S)


def _check(host: Host, text: str) -> None:
    now = state.read(host)
    if now.half:
        raise RuntimeError(f"EFA is half installed: {'; '.join(now.half)}: the next run repairs it")
    if now.unbuilt:
        raise RuntimeError(f"{'; '.join(now.unbuilt)}; see /var/lib/dkms/efa*/*/build/make.log")
    if now.text != text:
        raise RuntimeError(f"EFA's installer ended well, and the host has {now.text or 'nothing of it'}, not {text}")


def _await_devices(host: Host, *, minimal: bool) -> None:
    """Give devices time to appear in libfabric; who reads the state afterwards judges whether they have."""
    if minimal or not host.exists(state.MODULE):
        return
    for attempt in range(TRIES):
        offered, _ = state.offered_devices(host)
        if offered is not None and offered >= state.devices(host):
            return
        if attempt < TRIES - 1:
            time.sleep(PAUSE_S)


def _remove(host: Host, now: State) -> None:
    """Run the uninstaller, which goes by the installer's record; then remove packages of EFA that are in no record."""
    if now.version:
        if host.exists(f"{KEPT}/{source.SCRIPT}"):
            _run(host, host.real(KEPT), now, "--uninstall", "--yes")
        else:
            _remove_by_archive(host, now)
    left = state.read(host)
    if left.aws:
        names = [name for name, _ in left.aws]
        wrong = deb.write_debs(host, dict.fromkeys(names))
        if wrong:
            raise RuntimeError("; ".join(sorted(set(wrong.values()))))
    if state.read(host).text is not None:
        raise RuntimeError(f"the uninstaller ended well, and {state.RECORD} is still there")
    _forget_scripts(host)


def _forget_scripts(host: Host) -> None:
    import shutil

    with host.changing(f"remove {KEPT}"):
        shutil.rmtree(host.real(KEPT), ignore_errors=True)


def _remove_by_archive(host: Host, now: State) -> None:
    from ..efa import archive  # slow to load, as is shutil, and needed by few visits

    with _workplace(host) as folder:
        try:
            root = archive.obtain(host, source.read(host), now.version, folder)
        except (BadArchive, Unreadable) as error:
            raise RuntimeError(f"the uninstaller of {now.version} cannot be used: {error}; {AS_BEFORE}") from error
        _run(host, root, now, "--uninstall", "--yes")


def unavailable(host: Host, step: Step) -> str:
    """Why an undo cannot do this step, known beforehand; "" if it can."""
    version = (step.after or "").partition(" ")[0]
    has_scripts = host.exists(f"{KEPT}/{source.SCRIPT}")
    if step.after is None and has_scripts:
        return ""
    if step.after is None:
        version = (step.before or "").partition(" ")[0]
        if not version[:1].isdigit():
            return ""  # packages without a record, which apt removes
    from ..efa import archive

    wrong = archive.has(host, source.read(host), version)
    return f"installer {version} of EFA cannot be had ({wrong})" if wrong else ""
