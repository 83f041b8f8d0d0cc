"""The page: Gradio on FastAPI behind a host and origin guard, on the loopback interface only.

`ui.server.serve` runs it, `ui.app.build_app` builds it. Importing this package loads neither Gradio nor a web server.
"""
