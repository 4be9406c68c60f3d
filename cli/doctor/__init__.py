"""`kompakt doctor`."""
