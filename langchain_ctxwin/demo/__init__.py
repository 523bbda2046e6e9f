"""Demo scenarios, one file each."""
