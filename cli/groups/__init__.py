"""`kompakt groups`."""
