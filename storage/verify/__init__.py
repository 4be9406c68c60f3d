"""Checks of a data directory, for `kompakt dump-log --verify`."""
