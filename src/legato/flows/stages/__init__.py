"""Threads that work for stages: sessions, batches, failures, health, and what they show."""
