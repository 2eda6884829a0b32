"""Parsers for the output of tools, one module for each tool. `registry` has the table of all parsers.

A parser in that table takes a text and returns an immutable value. It does no I/O, draws no conclusions and never
raises an exception. Importing this package does not import the parsers.
"""
