"""What Spark's Python processes import for a batch: some live for one question, and each import is waited for."""

from __future__ import annotations

import subprocess
import sys

HEAVY = ("pandas", "lark", "lmdb", "uvloop")
READ_AND_WRITE = """
import sys
from datetime import UTC, datetime
import numpy as np
import pyarrow as pa
from legato.amqp.codec.header import Header
from legato.amqp.codec.message import DataBody, Properties, encode_message
from legato.bulk.arrays import binary_array, number_array, truth_array
from legato.spark.connector import batch, sink, stream
from legato.spark.connector.options import SinkOptions, SourceOptions
from legato.spark.connector.rows import Frames
from legato.spark.connector.shaping import shaped_rows

sent = [
    encode_message(
        header=Header(),
        properties=Properties(message_id=f"ID:{row}"),
        application_properties=own,
        body=DataBody(b"text"),
    )
    for row in range(600)
    for own in (None, {"weight": 3, "name": None})
]
count = len(sent)
times = number_array(np.arange(count, dtype=np.int64))
failed, flagged = number_array(np.zeros(count, np.int32)), truth_array(np.zeros(count, bool))
names = ["seq", "stored_us", "failed_deliveries", "flagged", "message"]
frame = pa.RecordBatch.from_arrays([times, times, failed, flagged, binary_array(sent)], names)
for options in ({}, {"payload": "text", "properties": "variant", "max_body_bytes": 3}):
    read = Frames(SourceOptions(url="amqp://127.0.0.1", queues=("orders",), **options), "orders")
    rows = read.rows(frame, unexpired_at=datetime.now(UTC))
    assert rows.num_rows == count and rows.column("properties").null_count == count // 2
to = SinkOptions(url="amqp://127.0.0.1", queue="orders", delivery_mode="PERSISTENT")
[written] = shaped_rows([rows.select(["body", "properties", "delivery_mode"])], to, 0)
assert written.num_rows == count
print(*sorted(set(sys.argv[1:]) & sys.modules.keys()))
"""


def test_reading_and_writing_rows_imports_nothing_that_takes_long() -> None:
    done = subprocess.run(
        [sys.executable, "-c", READ_AND_WRITE, *HEAVY], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []
