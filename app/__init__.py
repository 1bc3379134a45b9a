"""gpuyard: OpenAI-style batches on pools of GPU machines. Rooms and their walls: docs/architecture.md."""
