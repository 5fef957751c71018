"""The operator's command, switch.sh, and its programs."""
