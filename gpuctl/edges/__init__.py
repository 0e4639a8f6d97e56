"""Adapters to outside libraries and programs; one file each."""
