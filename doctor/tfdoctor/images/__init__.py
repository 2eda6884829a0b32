"""Images: built from a plan."""
