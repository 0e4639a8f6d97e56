"""Folders that stand for hosts: their files, and programs in place of theirs."""
