"""The gpuyard command. Works over app.client; starts other roles as processes and never imports them."""
