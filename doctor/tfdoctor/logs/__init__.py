"""Diagnosis of TensorFlow logs: `diagnose_log(chunks, compat)` returns the report with the root cause."""
