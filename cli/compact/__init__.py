"""`kompakt compact`, and the client of the HTTP API."""
