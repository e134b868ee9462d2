"""Drills: load on a pair of brokers, faults at random or at named points, and an account of every message."""
