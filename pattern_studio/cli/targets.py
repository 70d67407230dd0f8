"""`pattern-studio targets`: what export can write."""

from __future__ import annotations

import argparse

ABOUT = "the libraries and formats that export knows"


def arguments(parser: argparse.ArgumentParser) -> None:
    """None."""


def run(options: argparse.Namespace) -> None:
    from ..exporters import TARGETS

    for target in TARGETS.values():
        print(f"{target.name:24}{target.proof:10}{target.about}")
    print(
        "\nrun: the tests give the file to its consumer, on the CPU. gpu: make test-gpu does, where the package is "
        "installed.\ncontract: names, shapes, dtypes and counts are checked, and the consumer's rule pair by pair."
    )
