"""Pure parsers of what tools print, one module a topic; `kinds` has the table of all of them.

Text in, frozen values out; no I/O, no judgement, never an exception. Importing this package imports none of them.
"""
