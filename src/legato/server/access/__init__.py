"""Access: what users may do, by roles over patterns of addresses."""
