"""Monitoring: what a broker counts, and the HTTP endpoint at which it is read."""
