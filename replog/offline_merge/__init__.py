"""Offline merge: a child process makes the next snapshot from the last one and the log after it."""
