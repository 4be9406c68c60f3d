"""The HTTP API: compaction, jobs, leases."""
