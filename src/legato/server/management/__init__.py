"""The management address: requests, what they do, and what they show."""
