"""`kompakt transactions`."""
