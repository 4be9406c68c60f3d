"""Values that were written with a schema of a registry: the registry's client, and the decoders."""
