"""`kompakt snapshot`."""
