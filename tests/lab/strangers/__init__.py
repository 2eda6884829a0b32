"""Randomly broken environments, composed by a grammar and a seed, and tried on real TensorFlow and on tfdoctor.

See `scripts/strangers --help`. `ground` describes what can be broken, `grammar` what a seed draws from it, `kinds`
and `kinds_*` the ways to break it, `person` the user and the shell, and `trying` runs one seed from start to end.
"""
