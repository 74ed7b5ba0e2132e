"""Long random runs, one module each: ``run(minutes, seed) -> int`` (the number of failures). See ./dev campaign."""
