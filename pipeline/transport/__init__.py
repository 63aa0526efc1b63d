"""Rows trained elsewhere: `pack` puts their results into one file there, `adopt` takes them in here."""

from pipeline.transport.adopting import Adopted, adopt
from pipeline.transport.archive import pack

__all__ = ["Adopted", "adopt", "pack"]
