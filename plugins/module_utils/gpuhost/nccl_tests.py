"""nccl-tests of a host: what gpuctl has built, what a build needs, and whether the test of another folder runs."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from typing import NamedTuple

from .facts.folders import FOLDERS
from .host import PATH, Host
from .model import Unreadable
from .safe_program import on_host, unsafe
from .smi import ask

ABOVE = "/opt/gpuctl"
HOME = f"{ABOVE}/nccl-tests"
RECORD = f"{HOME}/build.json"
NEXT, FORMER = f"{ABOVE}/.nccl-tests.gpuctl", f"{ABOVE}/.nccl-tests.gpuctl-former"
WORK = "/var/lib/gpuctl/nccl-tests-work"
INCOMPLETE = "incomplete"
TEST = "all_reduce_perf"
DAMAGED = "damaged"
COMPUTE = ("--query-gpu=compute_cap", "--format=csv,noheader")
CUDA = ("/usr/local/cuda", "/usr")
NCCL = ("/opt/nccl/build", "/usr/local/nccl", "/usr/local", "/usr", "/usr/local/cuda")
DEBIAN_MPI = "/usr/lib/*-linux-gnu/openmpi"
MPI = (
    "/opt/amazon/openmpi",
    "/opt/hpcx/ompi",
    "/usr/mpi/gcc/openmpi",
    "/opt/openmpi",
    "/usr/local/mpi",
    "/usr/local",
    DEBIAN_MPI,
)
NO_MPI = "mpi.h is missing"
PROOF_LIMIT_S = 60.0
_VERSION = re.compile(r"nccl-tests version (\d+(?:\.\d+)+)")


class Build(NamedTuple):
    """A build: its version, compute capabilities such as "9.0", and the archive that it was made of."""

    version: str
    compute: tuple[str, ...]
    sha256: str
    uri: str

    @property
    def text(self) -> str:
        """Text of the setting, of which `build_of` is the inverse."""
        return f"{self.shown} {self.sha256} {self.uri}"

    @property
    def shown(self) -> str:
        """Version and GPU architectures, for people."""
        return f"{self.version} {','.join(map(architecture, self.compute))}"

    def fits(self, version: str, compute: Sequence[str], sha256: str) -> bool:
        """True for a build of this archive that has code for each of these capabilities, and for no others."""
        return (self.version, self.compute, self.sha256) == (version, tuple(compute), sha256)


class State(NamedTuple):
    """gpuctl's build on a host; None if there is none. `wrong`: why it is not whole, or what a killed run left."""

    build: Build | None
    wrong: str = ""

    @property
    def text(self) -> str | None:
        """Text of the setting."""
        text = self.build.text if self.build else INCOMPLETE if self.wrong else None
        return f"{text} {DAMAGED}" if self.wrong else text


class Toolchain(NamedTuple):
    """Folders of CUDA, NCCL and MPI, as nccl-tests' Makefile takes them."""

    cuda: str
    nccl: str
    mpi: str


def architecture(compute: str) -> str:
    """sm_90 of "9.0"."""
    return f"sm_{compute.replace('.', '')}"


def build_of(text: str) -> Build:
    """The build of a setting's text."""
    version, architectures, sha256, uri = text.split()[:4]
    numbers = (name[len("sm_") :] for name in architectures.split(","))
    return Build(version, tuple(f"{number[:-1]}.{number[-1]}" for number in numbers), sha256, uri)


def read(host: Host) -> State:
    """gpuctl's build, by its record and the sizes of its programs."""
    left = next((path for path in (FORMER, NEXT, WORK) if host.exists(path)), "")
    wrong = f"{left} is left of a run that was interrupted" if left else ""
    text = host.read_or_none(RECORD)
    if text is None:
        return State(None, wrong or (f"{HOME} has no {os.path.basename(RECORD)}" if host.exists(HOME) else ""))
    try:
        row = json.loads(text)
        build = Build(row["version"], tuple(row["compute"]), row["sha256"], row["uri"])
        sizes = {str(name): int(size) for name, size in row["programs"].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Unreadable(f"{RECORD} is not understood ({error}): remove {HOME}, and run gpuctl again") from error
    broken = [name for name, size in sizes.items() if _size(host, f"{HOME}/bin/{name}") != size]
    return State(build, f"{broken[0]} is missing or was changed" if broken else wrong)


def _size(host: Host, path: str) -> int:
    return os.stat(host.real(path)).st_size if host.is_executable(path) else -1


def compute_capabilities(host: Host) -> tuple[str, ...]:
    """Compute capabilities of the GPUs that the driver serves, each once, the lowest first; `Unreadable` without."""
    result = ask(host, *COMPUTE)
    if not result.ok:
        raise Unreadable(f"the compute capabilities of the GPUs are not known: nvidia-smi: {result.last_line}")
    values = {line.strip() for line in result.out.splitlines() if line.strip()}
    if not values or not all(re.fullmatch(r"\d+\.\d", value) for value in values):
        raise Unreadable(f"nvidia-smi names no compute capability: {result.last_line}")
    return tuple(sorted(values, key=lambda value: tuple(map(int, value.split(".")))))


def toolchain(host: Host, compute: Sequence[str]) -> tuple[Toolchain | None, tuple[str, ...]]:
    """Folders for a build, and what is missing for it; either of them is empty."""
    cuda = _with(host, CUDA, "bin/nvcc")
    nccl = _with(host, NCCL, "include/nccl.h")
    starter = next(iter(_of_mpirun(host)), "")
    mpi = _with(host, _mpi_folders(host, starter), "include/mpi.h")
    lacks = []
    if not cuda:
        lacks.append(f"nvcc is missing in {' and '.join(f'{path}/bin' for path in CUDA)}: install the CUDA toolkit")
    else:
        lacks += _not_built_for(host, f"{cuda}/bin/nvcc", compute)
    if not nccl:
        lacks.append("nccl.h is missing: install NCCL's headers (libnccl-dev, libnccl-devel)")
    if not mpi and starter:
        lacks.append(f"{NO_MPI} for {starter}/bin/mpirun, which starts the tests: install that MPI's headers")
    elif not mpi:
        lacks.append(f"{NO_MPI}: install Open MPI with its headers (libopenmpi-dev), or set efa")
    lacks += [f"{name} is missing: install it" for name in ("make", "g++") if not host.which(name)]
    return (None, tuple(lacks)) if lacks else (Toolchain(cuda, nccl, mpi), ())


def _with(host: Host, folders: Sequence[str], name: str) -> str:
    return next((folder for folder in folders if host.exists(f"{folder}/{name}")), "")


def _of_mpirun(host: Host) -> list[str]:
    """Folder of the mpirun that starts the tests: those of another MPI would not find each other's ranks."""
    places = (*PATH.split(":"), *(folder for folder in FOLDERS if folder.startswith("/")))
    return [os.path.dirname(folder) for folder in places if host.is_executable(f"{folder}/mpirun")][:1]


def _mpi_folders(host: Host, starter: str) -> list[str]:
    """Folders that may have the headers: of the MPI whose mpirun is in `starter`, or of any if that is ""."""
    patterns = [DEBIAN_MPI] if starter == "/usr" else [] if starter else MPI
    return [*([starter] if starter else []), *(path for pattern in patterns for path in host.glob(pattern))]


def _not_built_for(host: Host, nvcc: str, compute: Sequence[str]) -> list[str]:
    """GPUs that are newer, or older, than the compiler; empty if it does not list its architectures."""
    result = host.run(nvcc, "--list-gpu-code", limit=PROOF_LIMIT_S)
    known = result.out.split() if result.ok else []
    lacking = [architecture(value) for value in compute if known and architecture(value) not in known]
    if not lacking:
        return []
    return [f"{nvcc} makes no code for {', '.join(lacking)}: install a CUDA toolkit that does"]


def prove(host: Host, folder: str) -> tuple[str, str]:
    """(version of the test in a folder, "" if it prints none; why it does not run, "" if it does)."""
    path = f"{folder}/{TEST}"
    if not host.is_executable(path):
        return "", f"{path} is missing, or no program"
    # The resolved path is run, as a link on the way to it may be replaced after the check.
    program = os.path.realpath(host.real(path))
    if wrong := unsafe(host, program):
        return "", f"{path} is not run, as {wrong}: give it and its folders to root, writable by root alone"
    done = host.run(on_host(host, program), "-h", limit=PROOF_LIMIT_S)
    match = _VERSION.search(done.out + done.err)
    if done.ok or "USAGE" in done.out + done.err:
        return match[1] if match else "", ""
    return "", f"{path} does not run: {done.last_line}"
