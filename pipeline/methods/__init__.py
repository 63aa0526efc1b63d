"""Training methods: one file a method."""
