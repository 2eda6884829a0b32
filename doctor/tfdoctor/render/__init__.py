"""Reports as text. Nothing here computes: what is shown was decided before."""
