"""HTTP: one router a noun, each route parses, calls a service and answers."""
