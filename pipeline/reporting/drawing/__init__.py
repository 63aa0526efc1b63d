"""Style of the figures, and the figures over all papers, of every table and of every row."""
