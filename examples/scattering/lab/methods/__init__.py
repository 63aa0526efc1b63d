"""Training methods: one folder each."""
