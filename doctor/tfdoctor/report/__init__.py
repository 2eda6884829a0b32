"""Facts judged: the report, and its summary lines."""
