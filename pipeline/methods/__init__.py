"""Training methods: a folder a method, with its settings and the class that trains."""
