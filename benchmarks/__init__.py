"""Benchmarks of convolutions: `python -m benchmarks.layers`, see README.md."""

import os

os.environ.pop("JAXCONV_INSTALL", None)  # lax is lax's own here, with `+install` or without
