"""Make the report from the facts, with a line for each area."""
