"""Monitoring of a host: node_exporter, Prometheus, Alertmanager."""
