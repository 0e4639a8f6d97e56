"""Install and remove a workstation's tools; standard library only, Python 3.9."""
