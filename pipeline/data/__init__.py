"""Raw files in, prepared splits out."""
