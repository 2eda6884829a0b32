"""Commands that the core does not need. Each folder has everything that belongs to its command."""
