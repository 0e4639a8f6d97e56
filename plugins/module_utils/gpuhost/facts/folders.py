"""Where nccl-tests and MPI usually are: both who asks a node for them and who starts them look here."""

from __future__ import annotations

# Besides the PATH; an mpirun that is not on it is called by its whole name.
FOLDERS = [
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
