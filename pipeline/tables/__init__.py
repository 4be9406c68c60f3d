"""Latest values as tables."""
