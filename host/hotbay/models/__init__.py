"""What operators say of models: which name stands for which, and how urgent an objective is.

Import rule: `rules` and `documents` are pure; `files` reads the disk and follows it. They import `hotbay.config`, the fault
tree and each other, and know nothing of requests.
"""
