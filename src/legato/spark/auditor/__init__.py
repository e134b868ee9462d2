"""The audit: runs the checks, computes metrics, and describes violations in words."""
