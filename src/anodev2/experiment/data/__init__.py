"""Images to train on: where they come from, how they are kept, and their batches."""
