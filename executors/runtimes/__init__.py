"""One executor an LLM runtime: Ollama, any OpenAI-compatible server, the local model."""
