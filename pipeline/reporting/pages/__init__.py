"""The report's pages: an index with the findings, one page per paper, a table of all results, the ledgers.

Each page is one file, which loads nothing from elsewhere and is readable without scripts.
"""
