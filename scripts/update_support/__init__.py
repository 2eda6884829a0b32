"""What the scripts/update_*.py share: remote zip files and shared objects, read."""
