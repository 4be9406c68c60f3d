"""The last record of each key of a log, found by its key."""
