"""Spark sessions, jars, jobs and their progress."""
