"""Training and comparing the paper's networks on images."""
