"""Administration: dead letters, their editor, and traces of flows, as the command line and the console need them."""
