"""Parsers of the output of tools, one module per topic; `registry` has the table of all of them.

They take text and return immutable values; they do no I/O, draw no conclusions and never raise. Importing
this package imports none of them.
"""
