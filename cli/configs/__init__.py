"""`kompakt configs`."""
