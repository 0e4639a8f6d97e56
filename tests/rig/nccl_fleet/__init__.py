"""A fleet in memory that NCCL tests are run on: it knows what is bad, and shares nothing with what judges it."""
