"""Redaction of recordings and reports before they are published."""
