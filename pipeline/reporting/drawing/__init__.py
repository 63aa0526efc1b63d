"""Figures over all papers, of tables and of rows, and their common style."""
