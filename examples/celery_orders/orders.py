"""A Celery worker on Legato that bills orders; its database says which, and how often each task ran.

legato serve --store store --listen localhost:5672      # and a backup: --listen localhost:5673
celery --workdir examples/celery_orders -A orders worker --concurrency 2
python examples/celery_orders/orders.py 100             # orders 1 to 100
"""

import os
import sqlite3
import sys
from contextlib import closing

from celery import Celery, Task

import legato.kombu  # noqa: F401  (kombu knows legato:// from here on)

BROKER_URL = os.environ.get("BROKER_URL", "legato://localhost:5672,localhost:5673")
DATABASE = os.environ.get("ORDERS_DATABASE", "bills.db")
RETRY_S = 0.2

app = Celery("orders", broker=BROKER_URL)
app.conf.update(
    task_acks_late=True,  # a task is acknowledged when it is done
    task_reject_on_worker_lost=True,  # and comes again if its process dies
    task_ignore_result=True,
    worker_prefetch_multiplier=1,
    broker_connection_retry_on_startup=True,
)


@app.task(bind=True, max_retries=5)
def bill(self: Task, number: int) -> None:
    """Bill an order; the printer is out of paper for every tenth, once."""
    if number % 10 == 0 and self.request.retries == 0:
        raise self.retry(countdown=RETRY_S)
    with closing(sqlite3.connect(DATABASE, timeout=30)) as database, database:
        database.execute("CREATE TABLE IF NOT EXISTS bills (number INTEGER, task TEXT)")
        database.execute("INSERT INTO bills VALUES (?, ?)", (number, self.request.id))


def main() -> None:
    """Order some."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    for number in range(1, count + 1):
        # Returns when the broker has stored it; the urgent ones first, the last of ten a second later.
        bill.apply_async((number,), priority=9 if number % 7 == 0 else 0, countdown=1 if number % 10 == 9 else None)
    print(f"{count} orders are stored.")


if __name__ == "__main__":
    main()
