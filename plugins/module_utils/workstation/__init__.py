"""Installs and removes an operator's tools; standard library only, Python 3.9."""
