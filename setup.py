"""What pyproject.toml cannot say: the optional module of `legato.amqp` that is compiled (docs/decisions/0031)."""

from setuptools import setup

# The module keeps to the stable interface of Python 3.11: one wheel holds for all that come after.
setup(cffi_modules=["tools/build_batch.py:builder"], options={"bdist_wheel": {"py_limited_api": "cp311"}})
