"""Tables and SQL, the only room that knows SQLModel. Imported by app.services."""
