"""Kompakt beside Apache Kafka or another release: the same frames from one client process, in turn."""
