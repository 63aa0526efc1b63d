"""What is kept of a row: the schema of its files, where they lie, and how they join to a record."""
