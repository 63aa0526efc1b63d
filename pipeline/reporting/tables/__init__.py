"""A filled table as text, for reading and for computing."""
