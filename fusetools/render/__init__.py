"""Results to text, JSON, CSV and HTML: pure functions, a module per question in each."""
