"""The agent inside a GPU worker: one loop a file, and an agent that starts, stops and joins them."""
