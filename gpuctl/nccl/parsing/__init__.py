"""Parse the output of nccl-tests and of everything that prints into it."""
