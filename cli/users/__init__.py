"""kompakt users."""
