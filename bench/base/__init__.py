"""What groups share: figures, batches, processes, connections, null brokers, Apache Kafka."""
