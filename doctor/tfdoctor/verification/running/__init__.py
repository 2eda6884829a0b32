"""Run a user's program unchanged, and forward and analyze its output."""
