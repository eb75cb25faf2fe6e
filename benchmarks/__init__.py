"""Benchmarks of convolutions: `python -m benchmarks.layers`, see README.md."""
