"""What was changed in an environment, and how it is taken back."""
