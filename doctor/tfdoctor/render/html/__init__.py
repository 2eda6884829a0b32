"""Results as self-contained HTML pages.

Each page is one file that loads nothing from elsewhere, so that it works offline and as an e-mail attachment. All
external text in it is escaped.
"""
