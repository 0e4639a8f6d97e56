"""Multi-node ML environments on OpenShift and Kubernetes, from one file a cluster."""
