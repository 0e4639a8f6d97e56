"""Stores of rows, receipts and audit entries."""
