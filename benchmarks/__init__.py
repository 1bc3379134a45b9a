"""What measures gpuyard, beside what people use instead: `make bench` (docs/performance.md says how).

It imports the product's tests for their yards and clusters, and nothing imports it.
"""
