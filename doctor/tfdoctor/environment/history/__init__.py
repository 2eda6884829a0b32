"""The journal of changes in an environment, and their undo."""
