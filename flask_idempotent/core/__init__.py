"""The rules, without Flask, without a driver, without I/O."""
