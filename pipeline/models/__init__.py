"""Networks: one file per model, each with a `build` function."""
