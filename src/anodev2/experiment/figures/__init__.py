"""Pictures, one file each; `picture.py` writes them."""
