"""What groups share: figures, batches, checkouts, processes, connections, null brokers, Apache Kafka."""
