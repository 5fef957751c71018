"""The product against a real GPU: `python -m benchmarks.cuda --help`, docs/cuda.md."""
