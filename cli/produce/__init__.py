"""`kompakt produce`."""
