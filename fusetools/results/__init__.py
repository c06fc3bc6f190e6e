"""Types of answers: frozen dataclasses, one module per question."""
