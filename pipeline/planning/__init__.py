"""Planning of a private training: batch size and noise for an epsilon, and a small simulation."""
