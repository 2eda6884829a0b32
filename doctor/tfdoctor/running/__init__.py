"""Running a user's program unchanged, while its output is passed through and read."""
