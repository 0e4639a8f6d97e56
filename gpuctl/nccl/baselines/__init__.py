"""Expected bandwidths: shipped rows, site rows, and which row applies to a run."""
