"""Start an NCCL test on a node and end all its processes: standard library only, Python 3.9.

`start`, `process_tree` and `gpu_processes` import nothing of this package, as gpuctl also sends their text over ssh.
"""
