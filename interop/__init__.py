"""Clients and conformance suites that nobody here wrote, run against a real broker."""
