"""Dockerfiles: ours written, yours read and checked."""
