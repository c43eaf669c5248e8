"""Routing quality: which server a router picks, measured by what clients wait for a first token.

A fleet of simulated servers with prefix caches is asked the requests of a real trace, by way of this product and by way of
other routers' own binaries. Nothing of the product but the command `hotbay` is used on its side.
"""
