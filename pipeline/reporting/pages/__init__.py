"""The report's pages: an index with the findings, one page a paper, all results in one table.

Each is one file that loads nothing from elsewhere, and can be read without a script.
"""
