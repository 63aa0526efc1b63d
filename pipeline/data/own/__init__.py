"""A person's own data: files that params.yaml declares, treated as the catalogue's are."""
