"""Planning a private run: batch size and noise for a budget, and the small run that foretells it."""
