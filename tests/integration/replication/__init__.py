"""The replicated log on real servers."""
