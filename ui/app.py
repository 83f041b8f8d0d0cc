"""Builds the web application: FastAPI, our guard around everything, Gradio at `/`."""

from fastapi import FastAPI, Response

from appliance.service import Appliance
from ui.environment import prepare_environment
from ui.guard import Guard
from ui.payload import PayloadCheck

MAX_UPLOAD_BYTES = 256 * 1024 * 1024


def build_app(appliance: Appliance, port: int) -> FastAPI:
    """The application for a server that listens on `port` of the loopback interface.

    `app.state.switches` stops answers that are under way. Changes the environment (see `prepare_environment`); raises
    `PageRefused` where it holds a switch that would open the page.
    """
    prepare_environment(appliance.home.cache)

    # Gradio reads the environment when it is imported.
    import gradio

    from ui.answering import StopSwitches
    from ui.page import build_page
    from ui.theme import FAVICON, STYLE, page_theme

    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    app.add_middleware(PayloadCheck, cache=appliance.home.cache)
    app.add_middleware(Guard, port=port)  # added last, asked first
    app.state.switches = StopSwitches()

    @app.get("/favicon.ico")
    def favicon() -> Response:
        return Response(FAVICON, media_type="image/svg+xml")

    gradio.mount_gradio_app(
        app,
        build_page(appliance, app.state.switches),
        path="/",
        server_name="127.0.0.1",
        server_port=port,
        theme=page_theme(),
        css=STYLE,
        allowed_paths=[],
        blocked_paths=[str(appliance.home.uploads)],
        max_file_size=MAX_UPLOAD_BYTES,
        run_history=False,
        ssr_mode=False,
        mcp_server=False,
        pwa=False,
        enable_monitoring=False,
        footer_links=[],
        show_error=True,
    )
    return app
