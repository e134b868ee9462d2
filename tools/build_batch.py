"""Build of the optional module `legato.amqp._batch` from its C source; setup.py runs it."""

from pathlib import Path

from cffi import FFI

SOURCES = Path(__file__).parent.parent / "src" / "legato" / "amqp"

builder = FFI()
builder.cdef((SOURCES / "_batch.h").read_text())
builder.set_source(
    "legato.amqp._batch",
    (SOURCES / "_batch.c").read_text(),
    include_dirs=[str(SOURCES)],
    extra_compile_args=["-O2"],
    optional=True,
)
