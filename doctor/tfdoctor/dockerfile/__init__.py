"""Dockerfiles: tfdoctor's own are written, those of users are read and checked."""
