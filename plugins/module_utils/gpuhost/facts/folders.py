"""Usual folders of nccl-tests and MPI, for the facts of a node and for launches."""

from __future__ import annotations

# Besides the PATH; an mpirun that is not on it is started by its absolute path.
FOLDERS = [
    "/opt/gpuctl/nccl-tests/bin",  # built by gpuctl for the GPUs of the host
    "/opt/nccl-tests/build",
    "/opt/nccl-tests/bin",
    "/usr/local/nccl-tests/build",
    "/usr/local/bin",
    "~/nccl-tests/build",
    "/opt/amazon/openmpi/bin",
    "/usr/lib64/openmpi/bin",
    "/opt/hpcx/ompi/bin",
    "/usr/mpi/gcc/openmpi/bin",
]
