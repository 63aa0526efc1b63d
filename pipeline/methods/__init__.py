"""Training methods: one folder (room) per method, with its settings and its training class."""
