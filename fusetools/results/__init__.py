"""What the questions' answers look like: frozen types, one module per question."""
