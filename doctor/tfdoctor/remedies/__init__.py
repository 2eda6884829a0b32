"""Commands for the user to run, and steps that `fix` applies, for one Python or container engine.

The rules decide what is wrong, and use this package to make their remedies. Most functions take a `Target`.
`build_target` builds it from the facts about an examined machine; it can also be built without a machine.

All functions are pure: they read no files and run no programs.
"""
