"""Cleaning passes, their parts, and their cost for others."""
