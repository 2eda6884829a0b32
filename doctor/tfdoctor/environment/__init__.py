"""A Python environment on disk: made (`install`), fixed (`fix`), and taken back as it was (`fix --undo`)."""
