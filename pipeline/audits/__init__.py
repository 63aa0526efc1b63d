"""Audits: attacks on the code that ran, and lower bounds on epsilon from them."""
