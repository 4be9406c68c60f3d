"""The ledgers of cleaning passes of all log directories."""
