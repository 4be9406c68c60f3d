"""Expiry of values: collect -> compare -> append tombstones. Start reading in sweep.py."""
