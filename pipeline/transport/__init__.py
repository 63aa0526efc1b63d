"""Rows trained elsewhere: `pack` writes their results to a file there, and `adopt` imports this file here."""
