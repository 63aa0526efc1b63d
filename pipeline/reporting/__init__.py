"""The report: tables, figures and pages, made from records alone."""
