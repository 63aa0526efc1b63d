"""Records of a row: the schema of its files, their paths, and their join."""
