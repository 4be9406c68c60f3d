"""`kompakt get`."""
