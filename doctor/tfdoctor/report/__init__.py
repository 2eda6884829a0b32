"""The report from the facts, and its summary lines."""
