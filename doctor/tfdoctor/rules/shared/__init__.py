"""Functions that several rules share. They only read the facts; no module in this package is a rule."""
