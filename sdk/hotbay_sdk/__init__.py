"""What plugin authors use."""
