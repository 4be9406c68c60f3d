"""Comparison of mirrors with their sources."""
