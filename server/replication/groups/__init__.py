"""Committed offsets of the source's groups, which go along with mirrors."""
