"""Health of GPU nodes: the errors that the driver and DCGM report, and what to do about them."""
