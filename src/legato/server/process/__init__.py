"""The process: its roles, one epoch as a primary, and what happens because time passes."""
