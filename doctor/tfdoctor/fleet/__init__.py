"""Many hosts' results of `check --json`: which of them are alike, and what the odd one has that the others have not."""
