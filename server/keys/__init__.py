"""Counts of keys on request: the routes, and their answers."""
