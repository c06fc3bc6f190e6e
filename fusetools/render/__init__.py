"""Results to text, JSON and CSV: pure functions from the objects of fusetools.model to str."""
