"""Reports as text, JSON and HTML. The code here only formats results; it decides nothing."""
