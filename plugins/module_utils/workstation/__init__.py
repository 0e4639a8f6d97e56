"""Puts an operator's tools on a machine and takes them away again; standard library only, Python 3.9."""
