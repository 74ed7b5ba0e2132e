"""The tests, grouped as the package is; tests/browser runs as a process of its own (see ./dev test)."""
