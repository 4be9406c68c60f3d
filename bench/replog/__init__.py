"""Logs of state machines: the cost of keeping snapshots in the log, in files of the leader, or in files of each copy."""
