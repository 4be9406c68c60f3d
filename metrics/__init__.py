"""Every metric's name in one table, probes with verbs, and the HTTP endpoint."""
