"""Brokers that take over from each other: copies, promotion, and what a fenced broker still answers."""
