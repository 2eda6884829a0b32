"""A user's program run as it is, its output passed through and read."""
