"""Rows trained elsewhere: `pack` writes their results to a file there, and `adopt` imports this file here."""

from pipeline.transport.adopting import Adopted, adopt
from pipeline.transport.archive import pack

__all__ = ["Adopted", "adopt", "pack"]
