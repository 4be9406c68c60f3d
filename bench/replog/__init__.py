"""Logs of state machines: the cost of the three placements, and of writing snapshots."""
