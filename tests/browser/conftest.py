"""A real Chromium, and shops that it looks at."""

import os
from pathlib import Path

import pytest
from shop_folder import Shop

CHROMIUM = os.environ.get("LICTOR_CHROMIUM", "/usr/bin/chromium")


@pytest.fixture(scope="module")  # playwright keeps the loop of the main thread as long as it is open
def chromium():
    """The browser of the distribution; without it, or without playwright, these tests are skipped."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="pip install 'lictor[slow]'")
    if not Path(CHROMIUM).exists():
        pytest.skip(f"there is no {CHROMIUM}; apt-get install chromium, or name it with LICTOR_CHROMIUM")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield browser
        browser.close()


@pytest.fixture
def shop(tmp_path):
    """A folder with agents; its server, if one was started, is ended."""
    shop = Shop(tmp_path)
    yield shop
    shop.stop()


@pytest.fixture
def opened(chromium):
    """Open pages in a profile of their own; whatever asks for attention or breaks the policy fails the test."""
    contexts = []
    alarms = []

    def dialog(shown):
        alarms.append(f"dialog: {shown.message}")
        shown.dismiss()

    def said(message):
        if message.type == "error" and "Failed to load resource" not in message.text:
            alarms.append(message.text)

    def open_page(url=None, **options):
        context = chromium.new_context(**{"viewport": {"width": 1000, "height": 900}} | options)
        context.set_default_timeout(20_000)
        contexts.append(context)
        page = context.new_page()
        page.on("dialog", dialog)
        page.on("pageerror", lambda error: alarms.append(f"error: {error}"))
        page.on("console", said)
        if url is not None:
            page.goto(url)
        return page

    open_page.alarms = alarms
    yield open_page
    for context in contexts:
        context.close()
    assert alarms == []
