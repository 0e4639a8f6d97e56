"""The three troubles of an environment: a pod will not start, NCCL hangs, training is slow. Nothing is changed."""
