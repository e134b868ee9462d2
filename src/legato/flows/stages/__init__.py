"""Threads that work for stages: sessions, batches, failures, health, introspection."""
