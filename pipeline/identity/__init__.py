"""Origin of each result, and its comparison with the present settings, data and code versions."""
