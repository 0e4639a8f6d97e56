"""The rules of reservations, without I/O: rows and the time come in, changed rows and audit entries go out."""
