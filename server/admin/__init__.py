"""The HTTP API: compaction, jobs, leases, and who may use it."""
