"""What pods of an environment find in and around themselves, asked in all of them at the same time, and judged here."""
