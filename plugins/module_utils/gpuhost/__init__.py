"""The engine that reads and changes one GPU host: standard library only, Python 3.9, carried by Ansible or ssh."""
