"""The handlers, one file per API. Each file starts with the API's key, versions and behaviour."""
