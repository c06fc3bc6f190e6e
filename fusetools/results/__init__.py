"""The types of answers: frozen, one module per question."""
