"""The kubelet of a host: its service, its configuration files, and the rules for reserved resources."""
