"""Subnets: free addresses and blocks, owners of interfaces, forecasts and new subnets."""
