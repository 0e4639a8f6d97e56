"""Hosts: tune them, compare them, put them back."""
