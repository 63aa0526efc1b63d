"""What made a number, and whether what is here would make it again."""
