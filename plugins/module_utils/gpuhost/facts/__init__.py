"""What a host is, read without judging."""
