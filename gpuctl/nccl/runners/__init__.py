"""Run launches of nccl-tests: by mpirun, Ansible, Slurm, or in pods."""
