"""Fetches: which partitions a request is about, and the sessions that remember them between requests."""
