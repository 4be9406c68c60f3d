"""The metadata store, and facts about the cluster: features, producer ids, the node."""
