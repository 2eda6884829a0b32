"""Repairs of an environment: what can be mended, doing it, and taking it back."""
