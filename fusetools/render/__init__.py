"""Rendering of results as text, JSON, CSV and HTML: pure functions, one module per question."""
