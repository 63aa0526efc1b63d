"""The user's own data: files declared in params.yaml, treated like those of the catalogue."""
