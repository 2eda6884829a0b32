"""The one redactor: whatever is meant to be published goes through it, and through nothing else."""
