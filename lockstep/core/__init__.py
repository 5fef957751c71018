"""Parts that every room uses: errors, findings, typed data, YAML."""
