"""One program per question of speed; each prints a table and ends with one JSON line."""
