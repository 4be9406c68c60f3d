"""Erasure of keys: requests with a deadline, what holds them up, and their certificates."""
