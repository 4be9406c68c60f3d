"""`kompakt features`: the cluster's feature levels."""
