"""Flows as values and pure functions: calls, envelopes, joins, one run of a stage."""
