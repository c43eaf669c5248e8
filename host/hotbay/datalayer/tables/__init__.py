"""Figures of all endpoints in columns: rows, ages, and the immutable snapshot that a scheduling decision looks at.

Import rule: pure.
"""
