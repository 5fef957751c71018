"""What an operator types: switch.sh."""
