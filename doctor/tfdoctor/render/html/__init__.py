"""Results as self-contained HTML pages.

Each page is one file that loads nothing, works offline and as an e-mail attachment, and escapes all external
text.
"""
