"""Start an NCCL test on a node and leave nothing of it behind: standard library only, Python 3.9.

`start` and `sweep` know nothing of each other nor of anything else: gpuctl also carries their text over ssh.
"""
