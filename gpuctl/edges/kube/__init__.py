"""The Kubernetes API and kubectl."""
