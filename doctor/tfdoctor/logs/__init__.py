"""Find the root cause of a GPU problem in a TensorFlow log. The entry point is `report.diagnose_log`."""
