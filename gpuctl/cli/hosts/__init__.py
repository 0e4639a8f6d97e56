"""The commands that act on the hosts of an inventory, and how a run over hosts is shown."""
