"""Long runs of what tests tell shortly; each module is a command: `python -m tests.stress.cancelling --help`."""
