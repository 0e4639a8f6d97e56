"""Several features in one flow."""
