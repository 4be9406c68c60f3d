"""`kompakt dump-log --verify`."""
