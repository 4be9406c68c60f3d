"""Passes that Spark executes and the broker commits."""
