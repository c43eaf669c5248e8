"""Exit codes of the command: 0 done, 2 wrong usage (click's own), and these."""

from typing import Final

EXIT_FAILED: Final = 1
EXIT_CONFIG: Final = 78
"""A configuration that cannot be used; EX_CONFIG of sysexits.h."""
