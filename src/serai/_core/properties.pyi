"""Nothing for Python: `dress` calls it."""
