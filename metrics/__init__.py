"""The table of all metrics, the probes that count events, and the HTTP endpoint."""
