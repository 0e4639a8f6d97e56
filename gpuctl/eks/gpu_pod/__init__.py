"""A GPU pod in an EKS cluster, reached by ssh through a port forward."""
