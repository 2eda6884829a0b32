"""Detectors, which derive a root cause from the events of a log."""
