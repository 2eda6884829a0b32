"""Changes of a Python environment on disk: `install`, `fix` and `fix --undo`."""
