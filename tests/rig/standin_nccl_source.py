"""An archive of the name and layout of nccl-tests' source, whose Makefile takes the same variables; it has no test.

python -m tests.rig.standin_nccl_source HOST     prepares a host of the role's Molecule scenario
"""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import sys
import tarfile
from pathlib import Path

from tests.rig import Rig, TestHost

MAKEFILE = """\
# Stands in for nccl-tests' Makefile.
TESTS = all_reduce_perf all_gather_perf
build: $(TESTS:%=build/%)
build/%: src/%.cu
\t@/bin/mkdir -p build
\t$(CUDA_HOME)/bin/nvcc -DMPI_SUPPORT $(NVCC_GENCODE) -I$(NCCL_HOME)/include -I$(MPI_HOME)/include $< -o $@
.PRECIOUS: src/%.cu
"""
STANDINS = Path(__file__).parent / "standins"
SOURCE = "/opt/mirror-nccl-tests"
HEADERS = ("/usr/local/nccl/include/nccl.h", "/usr/lib/x86_64-linux-gnu/openmpi/include/mpi.h")


def archive(folder: Path, version: str, makefile: str = MAKEFILE) -> str:
    """Write the archive of a version; return its SHA-256."""
    target = folder / f"v{version}.tar.gz"
    folder.mkdir(parents=True, exist_ok=True)
    texts = {"Makefile": makefile, "LICENSE.txt": "stand-in\n"}
    texts |= {f"src/{name}_perf.cu": f"// {version}\n" for name in ("all_reduce", "all_gather")}
    with tarfile.open(target, "w:gz") as tar:
        for name, text in texts.items():
            member = tarfile.TarInfo(f"nccl-tests-{version}/{name}")
            member.size = len(text.encode())
            tar.addfile(member, io.BytesIO(text.encode()))
    return hashlib.sha256(target.read_bytes()).hexdigest()


def prepare(host: TestHost) -> dict[str, str]:
    """Give a host a stand-in for the CUDA toolkit, headers, and archives of two versions; return their SHA-256."""
    host.standin("nvidia-smi")
    host.write("/usr/local/cuda/bin/nvcc", (STANDINS / "standin-nvcc").read_text(), mode=0o755)
    for path in HEADERS:
        host.write(path, "// stand-in\n")
    host.write("/usr/bin/g++", "#!/bin/sh\necho 'stand-in for g++'\n", mode=0o755)
    shutil.copy2("/usr/bin/make", host.root / "usr/bin/make")  # the real one
    return {version: archive(host.root / SOURCE[1:], version) for version in ("2.16.3", "2.17.6")}


if __name__ == "__main__":
    rig = Rig(Path(os.environ["GPUCTL_RIG_STATE"]), lasting=True)
    sums = prepare(next(host for host in rig.hosts() if host.name == sys.argv[1]))
    Path(sys.argv[2]).write_text(sums["2.17.6"])
