"""One run: its network, what Lightning does with it, its checkpoints, and what is measured."""
