"""The control plane's HTTP client, for workers and the command line."""
