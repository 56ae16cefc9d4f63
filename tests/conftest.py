"""Shapes and types in the signatures of `src` are checked while the tests run.

The tests' tensors are tiny: one thread computes them faster than several that wait for each
other, in this process and in those that it starts.
"""

import os

os.environ["OMP_NUM_THREADS"] = "1"

from hypothesis import settings
from jaxtyping import install_import_hook

install_import_hook("anodev2", "typecheck.check")
# Properties are about values, so a busy machine must not fail them by the clock.
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")
