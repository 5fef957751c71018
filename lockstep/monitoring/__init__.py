"""What tells of a host, and who keeps it: node_exporter, Prometheus, Alertmanager."""
