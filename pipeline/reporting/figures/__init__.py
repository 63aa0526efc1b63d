"""Figures that a paper's file asks for, one module each."""
