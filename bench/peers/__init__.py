"""Kompakt beside Apache Kafka: the same frames from one client process, in turn."""
