"""`python -m hotbay.cli`: the command for an interpreter whose scripts are not on PATH."""

from hotbay.cli import main

main()
