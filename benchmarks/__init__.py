"""Measurements of the product beside the machine's floor. Imports hotbay; nothing imports it."""
