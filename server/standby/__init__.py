"""Brokers that take over from each other: which one serves, and what a fenced one still answers."""
