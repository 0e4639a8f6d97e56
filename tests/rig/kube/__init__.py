"""Real Kubernetes control planes and kubelets for tests."""
