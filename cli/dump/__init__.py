"""`kompakt dump-log`: look into a data directory."""
