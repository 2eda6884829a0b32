"""Look at a machine, run TensorFlow where asked."""
