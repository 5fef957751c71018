"""Stand-in Sparks on one machine: real systemd, sshd and Docker, no GPU."""
