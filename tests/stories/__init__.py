"""Every example runs, and keeps its promise."""
