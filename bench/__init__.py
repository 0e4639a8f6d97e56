"""How long gpuctl takes to tune a fleet, beside plain Ansible, mitogen, pyinfra and the floor that ssh sets."""

import os

# If it is set, as in many container images, each program that is timed compiles all its modules again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
