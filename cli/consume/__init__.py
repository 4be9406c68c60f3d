"""`kompakt consume`."""
