"""The command ``gibbsot``."""

from .main import main

__all__ = ["main"]
