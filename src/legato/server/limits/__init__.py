"""Limits: how much peers may take, and which names they may give."""
