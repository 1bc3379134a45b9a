"""What runs a job on a machine. Knows app.domain only."""
