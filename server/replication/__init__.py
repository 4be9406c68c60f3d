"""Mirrors: topics of another cluster, copied offset by offset."""
