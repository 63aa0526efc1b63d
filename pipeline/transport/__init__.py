"""Rows trained elsewhere: `pack` writes their results to one file there, `adopt` imports it here."""

from pipeline.transport.adopting import Adopted, adopt
from pipeline.transport.archive import pack

__all__ = ["Adopted", "adopt", "pack"]
