"""What runs of NCCL tests came to: for a terminal, for programs, and as a page that stands alone."""
