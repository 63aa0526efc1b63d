"""Data sets: raw files with compared checksums, and prepared splits."""
