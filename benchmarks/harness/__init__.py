"""Runs competitors against each other: declares, samples and compares, knows no benchmark.

Standard library only, because `run.py` has to work before anything is installed.
"""

from harness.declare import Benchmark, Case, Competitor, Target

__all__ = ["Benchmark", "Case", "Competitor", "Target"]
