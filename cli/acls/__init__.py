"""`kompakt acls`."""
