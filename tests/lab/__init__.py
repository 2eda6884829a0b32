"""The lab: real TensorFlow against a stand-in driver and stand-in CUDA libraries."""
