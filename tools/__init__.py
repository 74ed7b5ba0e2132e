"""What ./dev calls: the project's own commands."""
