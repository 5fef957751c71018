"""One run over all hosts: plan, copying between hosts, summary."""
