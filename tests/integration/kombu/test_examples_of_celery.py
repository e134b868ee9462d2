"""Examples of Celery's own documentation, with the broker's URL changed and nothing else.

The programs are those of docs.celeryq.dev, "First Steps with Celery", "Next Steps", "Canvas", "Periodic Tasks" and
"Routing Tasks"; a worker of their own runs them, as the pages say.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from legato.testing import broker
from tests.integration.kombu.test_celery import until

pytestmark = pytest.mark.slow

FIRST_STEPS = """
from celery import Celery
import legato.kombu

app = Celery('tasks', backend='rpc://', broker=BROKER)

@app.task
def add(x, y):
    return x + y
"""
CALLING = """
from tasks import add
result = add.delay(4, 4)
assert result.get(timeout=60) == 8
assert result.ready()
failed = add.delay(2, 'two')
try:
    failed.get(timeout=60)
except TypeError as error:
    print('propagated', error)
assert failed.failed() and failed.state == 'FAILURE'
print('done')
"""

NEXT_STEPS = """
from celery import Celery
import legato.kombu

app = Celery('proj', broker=BROKER, backend='db+sqlite:///results.db')
app.conf.update(result_expires=3600, result_chord_retry_interval=0.1)

@app.task
def add(x, y):
    return x + y

@app.task
def mul(x, y):
    return x * y

@app.task
def xsum(numbers):
    return sum(numbers)
"""
CANVAS = """
from celery import chain, chord, group
from tasks import add, mul, xsum

assert add.apply_async((2, 2), countdown=1).get(timeout=60) == 4
assert add.signature((2, 2), countdown=0).delay().get(timeout=60) == 4
assert add.s(2).delay(8).get(timeout=60) == 10
assert group(add.s(i, i) for i in range(10))().get(timeout=60) == [0, 2, 4, 6, 8, 10, 12, 14, 16, 18]
assert group(add.s(i) for i in range(10))(10).get(timeout=60) == list(range(10, 20))
assert chain(add.s(4, 4) | mul.s(8))().get(timeout=60) == 64
assert (add.s(4, 16) | mul.s(2) | mul.s(4))().get(timeout=60) == 160
assert chord((add.s(i, i) for i in range(10)), xsum.s())().get(timeout=60) == 90
assert (group(add.s(i, i) for i in range(10)) | xsum.s())().get(timeout=60) == 90
assert [sum(each) for each in zip(*add.chunks(zip(range(10), range(10)), 10)().get(timeout=60))]
print('done')
"""

PERIODIC = """
from celery import Celery
import legato.kombu

app = Celery(broker=BROKER)

@app.on_after_configure.connect
def setup_periodic_tasks(sender: Celery, **kwargs):
    sender.add_periodic_task(0.2, test.s('hello'), name='add every 0.2')

@app.task
def test(arg):
    print(arg)
    open('heard', 'a').write(arg + ' ')
"""

ROUTING = """
from celery import Celery
from kombu import Exchange, Queue
import legato.kombu

app = Celery('tasks', backend='rpc://', broker=BROKER)
default_exchange = Exchange('default', type='direct')
media_exchange = Exchange('media', type='topic')
app.conf.task_queues = (
    Queue('default', default_exchange, routing_key='default'),
    Queue('videos', media_exchange, routing_key='media.video.#'),
    Queue('images', media_exchange, routing_key='media.image.#'),
)
app.conf.task_default_queue = 'default'
app.conf.task_default_exchange = 'default'
app.conf.task_default_routing_key = 'default'
app.conf.task_routes = {'tasks.compress': {'exchange': 'media', 'routing_key': 'media.video.compress'}}

@app.task(bind=True)
def compress(self, name):
    return self.request.delivery_info['routing_key']

@app.task(bind=True)
def add(self, x, y):
    return self.request.delivery_info['routing_key']
"""
ROUTED = """
from tasks import add, compress
assert compress.delay('a.avi').get(timeout=60) == 'media.video.compress'
assert add.delay(1, 2).get(timeout=60) == 'default'
assert add.apply_async((1, 2), exchange='media', routing_key='media.image.thumb').get(timeout=60) == 'media.image.thumb'
assert add.apply_async((1, 2), queue='images').get(timeout=60) == 'media.image.#'
print('done')
"""


@pytest.mark.parametrize(
    ("tasks", "calls", "options"),
    [
        pytest.param(FIRST_STEPS, CALLING, [], id="First Steps with Celery"),
        pytest.param(NEXT_STEPS, CANVAS, [], id="Next Steps and Canvas"),
        pytest.param(PERIODIC, "", ["--beat"], id="Periodic Tasks"),
        pytest.param(ROUTING, ROUTED, [], id="Routing Tasks"),
    ],
)
def test_an_example_of_celerys_documentation_runs_on_legato(
    tasks: str, calls: str, options: list[str], tmp_path: Path
) -> None:
    with broker() as running:
        url = running.url.replace("amqp://", "legato://")
        (tmp_path / "tasks.py").write_text(tasks.replace("BROKER", repr(url)))
        log = tmp_path / "worker.log"
        environment = os.environ | {"PYTHONPATH": str(tmp_path), "PYTHONWARNINGS": "default"}
        command = [sys.executable, "-m", "celery", "-A", "tasks", "worker", "--loglevel=INFO", "--concurrency=2"]
        with log.open("wb") as output:
            worker = subprocess.Popen(
                [*command, *options], cwd=tmp_path, env=environment, stdout=output, stderr=subprocess.STDOUT
            )
        try:
            until(lambda: "ready." in log.read_text() or worker.poll() is not None)
            assert worker.poll() is None, log.read_text()
            if calls:
                run = subprocess.run(
                    [sys.executable, "-c", calls],
                    cwd=tmp_path,
                    env=environment,
                    capture_output=True,
                    text=True,
                    timeout=280,
                    check=False,
                )
                assert run.stdout.rstrip().endswith("done"), run.stderr + log.read_text()
            else:
                heard = tmp_path / "heard"
                until(lambda: heard.exists() and heard.read_text().split()[:3] == ["hello"] * 3)
            worker.terminate()
            assert worker.wait(60) == 0, log.read_text()
        finally:
            worker.kill()
            worker.wait()
