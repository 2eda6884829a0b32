"""The redactor that everything to be published goes through."""
