"""The workstation: what is installed on it, from where, and how it is put back."""
