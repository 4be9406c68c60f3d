"""Listeners: addresses, overrides of properties, certificates, logins."""
