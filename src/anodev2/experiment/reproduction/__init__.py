"""The paper's tables: which runs they need, where these run, and what came out of them."""
