"""Detectors: functions that derive a cause from the events of a log, one module for each subject."""
