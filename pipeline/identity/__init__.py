"""Origin of each result, and comparison with the present settings, data and code versions."""
