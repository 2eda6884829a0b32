"""A generator of strangers: environments composed by a grammar and a seed, tried on real TensorFlow and on tfdoctor.

`scripts/strangers --help` says how it is run. `ground` is what there is to break, `grammar` what a seed draws out of
it, `kinds` and its neighbours the ways to break it, `person` whose shell it is, `trying` one seed from end to end.
"""
