"""Thresholds at which an audit or a table run changes its method, each with its measurement.

All were measured on two cores. None changes an answer: only which of several equal ways is taken.
"""

INLINE_BYTES_MAX = 32 << 10
"""Bytes of segments up to which facts are carried from plan to plan as literal rows: some hundred facts.

An audit of twenty records in a warm JVM: 2.2 s; by files it took 3.3 s (docs/decisions/0049).
"""

INLINE_ROWS_MAX = 2_000
"""Rows of commits or transactions up to which they are parts of plans.

As parts of plans the 31,000 commits of 5 million facts cost 3 s more than as files (docs/decisions/0049).
"""

INTERPRET_ROWS_MAX = 50_000
"""Rows up to which an interpreted query beats a compiled one: break-even is at 150,000 (docs/decisions/0049)."""

IN_PROCESS_BYTES_MAX = 256 << 10
"""Bytes of segments, some ten thousand facts, up to which this process reads them sooner than another one starts.

Such ledgers are asked with `SMALL_QUERY_SETTINGS`, too.
"""

INTERPRET_TABLES_BYTES_MAX = 32 << 20
"""Bytes of the files that a view of gold asks, up to which it is interpreted."""

COMPILE_THOROUGHLY_BYTES_MIN = 128 << 20
"""Bytes of segments, some ten million facts, from which on the JVM compiles thoroughly what is hot.

25 million facts in a new JVM: 43 s by the simple compiler alone, 47 s with both (docs/decisions/0048).
"""
