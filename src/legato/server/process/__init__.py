"""The broker process: its roles, its epochs as primary, its timers."""
