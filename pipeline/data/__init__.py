"""Data sets: raw files, compared by checksum, and prepared splits."""
