"""The product against a real GPU: `python -m benchmarks.cuda --help`, docs/cuda.md."""

from pathlib import Path

#: The checkout, which processes of a benchmark import from.
REPOSITORY = Path(__file__).resolve().parents[2]
