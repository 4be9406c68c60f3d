"""Proof of what the cleaner did."""
