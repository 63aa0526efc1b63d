"""Privacy ledgers: claimed epsilon, bounds and uncovered data uses of trainings."""
