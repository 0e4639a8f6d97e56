"""nccl-tests as built on the host: "nccl_tests:build", text "2.17.6 sm_90 SHA256 URI"; None if there is no build.

The source is fetched, verified by its pinned SHA-256 and built in a private folder; its programs replace those before
in one rename, after they have run.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

from .. import nccl_tests
from ..download import download
from ..host import Host, Result, sync_folder
from ..nccl_tests import ABOVE, FORMER, HOME, NEXT, RECORD, TEST, WORK, Build, Toolchain

SETTING = "nccl_tests:build"
LOG = "/var/log/gpuctl-nccl-tests.log"
LOCK = "/var/lib/gpuctl/nccl-tests.lock"  # make and all that it starts hold it, also after gpuctl was killed
LIMIT_S = 3600.0
GRACE_S = 10.0  # from SIGTERM to SIGKILL, for make and all that it has started
TIMED_OUT = 124  # exit status of timeout
PROGRAM = re.compile(r"\w+_perf")


class NcclTests:
    """The only one; its name is "build"."""

    def __init__(self, name: str) -> None:
        self.name = name

    def read(self, host: Host) -> str | None:
        return nccl_tests.read(host).text

    def write(self, host: Host, text: str | None) -> None:
        _refuse_running(host)
        _clear(host)
        if text is None:
            _remove(host)
        elif nccl_tests.read(host).text != text:
            _build(host, nccl_tests.build_of(text))


def _refuse_running(host: Host) -> None:
    """RuntimeError while the make of an earlier run still works in the folder that is to be removed."""
    import fcntl

    try:
        descriptor = os.open(host.real(LOCK), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        reason = f"a build of an interrupted run still works ({LOCK} is held): wait for its make, or end it"
        raise RuntimeError(reason) from None
    finally:
        os.close(descriptor)


def _build(host: Host, build: Build) -> None:
    tools, lacks = nccl_tests.toolchain(host, build.compute)
    if tools is None:
        raise RuntimeError("; ".join(lacks))
    from ..unpack import BadArchive, unpack

    with _workplace(host) as folder:
        archive, top = os.path.join(folder, "source.tar.gz"), f"nccl-tests-{build.version}"
        wrong = download(host, build.uri, archive, LIMIT_S)
        if wrong:
            raise RuntimeError(f"nccl-tests {build.version} cannot be fetched: {wrong}")
        digest = _sha256(archive)
        if digest != build.sha256:
            raise RuntimeError(f"{build.uri} has the SHA-256 {digest}, pinned is {build.sha256}: nothing was unpacked")
        try:
            unpack(archive, folder, top)
        except BadArchive as error:
            raise RuntimeError(f"{build.uri} cannot be used: {error}") from error
        root = os.path.join(folder, top)
        _make(host, root, build, tools)
        _install(host, root, build)


def _sha256(path: str) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as stream:
        for block in iter(lambda: stream.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()


@contextmanager
def _workplace(host: Host) -> Iterator[str]:
    """A private folder on disk; that of a killed run is removed first."""
    import shutil  # slow to load, and needed by few visits

    real = host.real(WORK)
    with host.changing(f"create {WORK}"):
        shutil.rmtree(real, ignore_errors=True)
        host.make_private_folder(WORK)
    try:
        yield real
    finally:
        shutil.rmtree(real, ignore_errors=True)


def _make(host: Host, root: str, build: Build, tools: Toolchain) -> None:
    """Run make for these GPUs alone, with MPI; RuntimeError with the compiler's error, and its output in a file."""
    codes = [value.replace(".", "") for value in build.compute]
    variables = {
        "MPI": "1",
        "MPI_HOME": host.real(tools.mpi),
        "NCCL_HOME": host.real(tools.nccl),
        "CUDA_HOME": host.real(tools.cuda),
        "NVCC_GENCODE": " ".join(f"-gencode=arch=compute_{code},code=sm_{code}" for code in codes),
    }
    libraries = [f"{folder}/{name}" for folder in tools for name in ("lib", "lib64") if folder != "/usr"]
    argv = ["make", "-C", root, f"-j{min(os.cpu_count() or 1, 8)}", *(f"{k}={v}" for k, v in variables.items())]
    # The linker writes these folders into the programs, as jobs do not have them in their environment.
    scratch = os.path.join(os.path.dirname(root), "scratch")
    os.mkdir(scratch, 0o700)
    environment = {"LD_RUN_PATH": ":".join(libraries), "TMPDIR": scratch, "HOME": scratch}
    guard = ("flock", "--nonblock", host.real(LOCK), "timeout", f"--kill-after={GRACE_S}", str(LIMIT_S))
    done = host.run(*guard, *argv, changes=True, limit=LIMIT_S + 3 * GRACE_S, environment=environment)
    if done.code == TIMED_OUT:
        raise RuntimeError(f"nccl-tests {build.version}: make was not done in {LIMIT_S:.0f} s, and was ended")
    if not done.ok:
        host.replace(LOG, f"{done.out}\n{done.err}\n", mode=0o600)
        raise RuntimeError(f"nccl-tests {build.version} cannot be built: {_reason(done)}; see {LOG}")


def _reason(done: Result) -> str:
    lines = re.findall(r"^.*\b(?:fatal error|error|undefined reference)\b.*$", f"{done.err}\n{done.out}", re.MULTILINE)
    return lines[0].strip()[:300] if lines else done.last_line


def _install(host: Host, root: str, build: Build) -> None:
    """Copy the programs beside those before, let one run, then rename the folder."""
    import shutil

    made = os.path.join(root, "build")
    names = sorted(name for name in os.listdir(made) if PROGRAM.fullmatch(name)) if os.path.isdir(made) else []
    if TEST not in names:
        raise RuntimeError(f"make ended well, and made no {TEST}; is {build.uri} nccl-tests?")
    is_new = not host.exists(ABOVE)
    host.make_folder(f"{NEXT}/bin")
    with host.changing(f"fill {NEXT}"):
        for path in (*([ABOVE] if is_new else []), NEXT, f"{NEXT}/bin"):
            os.chmod(host.real(path), 0o755)  # noqa: S103 - for every user, with any umask
        for name in names:
            shutil.copy2(os.path.join(made, name), host.real(f"{NEXT}/bin/{name}"))
            os.chmod(host.real(f"{NEXT}/bin/{name}"), 0o755)  # noqa: S103 - for every user, with any umask
        license_file = os.path.join(root, "LICENSE.txt")
        if os.path.isfile(license_file):
            shutil.copy2(license_file, host.real(NEXT))
    sizes = {name: os.stat(host.real(f"{NEXT}/bin/{name}")).st_size for name in names}
    _, wrong = nccl_tests.prove(host, f"{NEXT}/bin")
    if wrong:
        _clear(host)
        raise RuntimeError(f"the build of nccl-tests {build.version} is not installed: {wrong}")
    row = {**build._asdict(), "programs": sizes}
    host.replace(f"{NEXT}/{os.path.basename(RECORD)}", json.dumps(row, indent=1) + "\n")
    with host.changing(f"replace {HOME}"):
        if host.exists(HOME):
            os.rename(host.real(HOME), host.real(FORMER))
        os.rename(host.real(NEXT), host.real(HOME))
        sync_folder(host.real(ABOVE))
    _clear(host)


def _clear(host: Host) -> None:
    """Remove what a run left that was killed; a build that was moved aside, and not replaced yet, comes back."""
    import shutil

    with host.changing("remove leftovers of nccl-tests"):
        if host.exists(FORMER) and not host.exists(HOME):
            os.rename(host.real(FORMER), host.real(HOME))
        for path in (NEXT, FORMER, WORK):
            shutil.rmtree(host.real(path), ignore_errors=True)


def _remove(host: Host) -> None:
    import shutil

    with host.changing(f"remove {HOME}"):
        if host.exists(HOME):
            # In one step, so that a kill leaves no half build without its record.
            os.rename(host.real(HOME), host.real(NEXT))
            sync_folder(host.real(ABOVE))
        shutil.rmtree(host.real(NEXT), ignore_errors=True)
    for path in (LOG, LOCK):
        host.remove(path)
    host.remove_folder(ABOVE)
