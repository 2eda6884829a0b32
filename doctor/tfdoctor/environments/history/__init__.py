"""Record the changes that fix makes in an environment, and undo them."""
