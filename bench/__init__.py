"""How long gpuctl takes to tune a fleet, beside plain Ansible, mitogen, pyinfra and the floor that ssh sets."""
