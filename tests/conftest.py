"""Shapes and types in the signatures of `src` are checked while the tests run."""

from jaxtyping import install_import_hook

install_import_hook("anodev2", "typecheck.check")
