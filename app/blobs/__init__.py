"""Contents of files, hand-ins and results outside the database. Imported by app.services."""
