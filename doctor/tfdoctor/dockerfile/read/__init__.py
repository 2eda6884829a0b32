"""A user's own Dockerfile, read without building it."""
