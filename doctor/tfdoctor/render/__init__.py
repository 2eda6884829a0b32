"""Format results as text, JSON and HTML. The code here makes no decisions about the results."""
