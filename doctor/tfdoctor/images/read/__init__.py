"""Read a user's Dockerfile without building it."""
