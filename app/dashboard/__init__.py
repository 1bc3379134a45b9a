"""The page for people: the files of `page/` as they are sent, and what a browser is told beside them.

Plain HTML, CSS and JavaScript modules, nothing of which is built. The page is a client of the HTTP API like any other:
this room knows no other room of ours, and `app.api.pages` sends what it gives.
"""
