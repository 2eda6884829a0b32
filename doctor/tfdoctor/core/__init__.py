"""Values and vocabulary that every other package uses: facts, findings, causes, versions, text and errors."""
