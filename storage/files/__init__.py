"""What storage asks of a disk; the only place that touches one."""
