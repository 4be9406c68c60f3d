"""Read-only topics of the broker's own: the last values of another topic."""
