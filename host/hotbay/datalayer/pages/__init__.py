"""Metrics pages as text, and how they are read: what an engine calls its figures, and the values of the families asked for.

Import rule: pure.
"""
