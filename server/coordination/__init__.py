"""Coordinators: groups and transactions, each over a topic of its own."""
