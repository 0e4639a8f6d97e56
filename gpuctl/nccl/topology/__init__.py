"""Where nodes, adapters and ranks are in the fabric."""
