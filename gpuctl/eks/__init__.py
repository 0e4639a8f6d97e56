"""EKS clusters with GPU nodes: cluster files, and what would fail or cost when one is made."""
