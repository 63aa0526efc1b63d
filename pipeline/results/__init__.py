"""What came out: records, their evaluation, and their projection into MLflow."""
