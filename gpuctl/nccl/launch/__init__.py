"""What every launch of nccl-tests shares, whichever runner makes it."""
