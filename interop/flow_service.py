"""The service of `interop/run-flows`: three stages and a terminator, each of which detects repeated work."""

from __future__ import annotations

import sys

from legato.flows import Context, Flows, Policy

CREATE = (
    "CREATE TABLE orders (item TEXT)",
    "CREATE TABLE work (stage TEXT, item TEXT)",
    "CREATE TABLE totals (stage TEXT PRIMARY KEY, number INTEGER NOT NULL)",
)
STAGES = ("Orders.place", "Orders.place.stage1", "Orders.place.stage2", "Orders.done")


def work(context: Context[None], item: str) -> None:
    """Rows without a key, and a sum: whoever works twice shows in both."""
    context.database.exec_driver_sql(f"INSERT INTO work VALUES ('{context.stage_id}', '{item}')")
    context.database.exec_driver_sql(f"UPDATE totals SET number = number + 1 WHERE stage = '{context.stage_id}'")


def make_service(url: str, database: str, batch: str = "1") -> Flows:
    """The service, with inbox and outbox, whose stages take and send so many together."""
    policy = Policy(concurrency=2, batch_max=int(batch), bundle_max=int(batch))
    flows = Flows(url, database=database, name="orders", policy=policy)
    place = flows.endpoint("Orders.place")

    @place.stage
    def received(context: Context[None], item: str) -> None:
        work(context, item)
        context.next(item)

    @place.stage
    def priced(context: Context[None], item: str) -> None:
        work(context, item)
        context.next(item)

    @place.last_stage
    def placed(context: Context[None], item: str) -> str:
        work(context, item)
        return item

    @flows.terminator("Orders.done")
    def done(context: Context[None], item: str) -> None:
        work(context, item)

    return flows


if __name__ == "__main__":
    make_service(*sys.argv[1:]).run()
