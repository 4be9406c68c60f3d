"""kompakt standby."""
