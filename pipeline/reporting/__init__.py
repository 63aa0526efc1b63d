"""Tables, figures and the page, drawn from records alone."""
