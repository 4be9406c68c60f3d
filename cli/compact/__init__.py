"""`kompakt compact`."""
