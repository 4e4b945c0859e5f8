"""Stands for the compiled module that `beamtree.native.variants` chooses: importing this name gives that module."""

import sys

from beamtree.native.variants import load_kernels

sys.modules[__name__] = load_kernels()
