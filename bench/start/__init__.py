"""Starts: from an empty directory, with many segments, after an unclean stop."""
