"""Comparison of a cleaned log with its original."""
