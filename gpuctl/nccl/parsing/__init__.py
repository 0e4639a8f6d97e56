"""How the text of nccl-tests, and of all that prints beside it, is read."""
