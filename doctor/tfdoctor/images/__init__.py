"""Write tfdoctor's own Dockerfiles, and parse and check those of users."""
