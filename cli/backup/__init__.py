"""`kompakt backup`."""
