"""The command ``gibbsot``: `main` is the entry point, and each subcommand is a module of its name."""

from .main import main

__all__ = ["main"]
