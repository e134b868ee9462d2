"""The audit: runs the checks, counts and measures, and says in words what does not hold."""
