"""Which endpoints may be picked, as their own answers show: ejection, half-open probes, the floor, slow start.

Import rule: all but `watch` are pure.
"""
