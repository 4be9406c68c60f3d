"""`kompakt topics`."""
