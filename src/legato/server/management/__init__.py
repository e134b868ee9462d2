"""The management address: requests, operations, and views of the broker's state."""
