"""`kompakt quotas`."""
