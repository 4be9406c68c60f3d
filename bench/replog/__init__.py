"""Logs of state machines: the cost of snapshots in the log, in files of the leader, or of each copy."""
