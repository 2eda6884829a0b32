"""Answers as pages: one file each, which fetches nothing, works from a disk and as an attachment of a mail, and in
which text from outside stays text."""
