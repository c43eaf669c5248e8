"""Hotbay: a plugin host for live inference routing."""
