"""Durable port forwards: many pods at once, planned, probed and restarted."""
