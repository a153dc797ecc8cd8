"""The dashboard: what a group does, as a page in a browser.

From the bottom to the top: `moves` and `view` are pure and say what is shown; `ring` keeps the last day in a file;
`watching` looks at a pipeline again and again; `access` says who may ask; `server` answers. `page/` is the page: three
files, served as they are. It needs no address but this server's, and no build step.

Importing `server` needs Starlette and uvicorn (the extra `dashboard`); the rest needs the standard library.
"""
