"""From numbers to words: intervals, what a guarantee is worth, whether a claim holds."""
