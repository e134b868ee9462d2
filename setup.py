"""What pyproject.toml cannot say: the optional module of `legato.amqp` that is compiled (docs/decisions/0031)."""

from setuptools import setup

setup(cffi_modules=["tools/build_batch.py:builder"])
