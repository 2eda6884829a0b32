"""What TensorFlow writes to its log, read back: `diagnose_log(chunks, compat)` gives the one root cause."""
