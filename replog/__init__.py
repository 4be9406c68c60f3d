"""Raft's log compaction: a log, snapshots of the state machine that applies it, followers."""
