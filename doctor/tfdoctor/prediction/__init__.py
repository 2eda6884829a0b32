"""Predict from facts whether TensorFlow will use the GPU, stage by stage, without any I/O."""
