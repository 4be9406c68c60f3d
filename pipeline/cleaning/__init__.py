"""Passes carried out by Spark."""
