"""The `hotbay` command. Functions import what they need when they run, so that `hotbay version` is quick."""

from hotbay.cli.main import main

__all__ = ["main"]
