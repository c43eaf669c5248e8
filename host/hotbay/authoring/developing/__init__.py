"""What `hotbay dev` is made of: a project repacked at each save, installed beside its dependencies, and what is told of it.

Imports nothing of the host that runs it: the command joins both.
"""
