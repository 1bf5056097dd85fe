"""A team in a real browser: a person lets a member in and sees the team finish; hostile text of members stays text."""

import re

import pytest

pytestmark = pytest.mark.browser


def test_a_member_is_let_in_and_the_team_finishes_in_the_page(shop, opened):
    """The page says what is asked and what follows; after the click it shows members, route and answer by itself."""
    shop.start("team")
    page = opened(shop.serve())
    assert page.get_by_role("heading", name="team wants to give work to carrier").is_visible()
    assert page.get_by_text("carrier works once, on what is shown.").is_visible()
    assert page.get_by_text("carrier is skipped: it does not work").is_visible()
    page.get_by_role("link", name=re.compile("^run ")).click()
    board = page.get_by_role("table", name="Team")
    assert board.get_by_role("row", name=re.compile("^carrier waits for you")).is_visible()
    assert page.get_by_role("meter", name="turns").get_attribute("value") == "1"
    page.get_by_role("button", name="Approve", exact=True).click()
    page.get_by_role("heading", name=re.compile("^Run .* completed$")).wait_for()
    assert board.get_by_role("row", name=re.compile("^carrier done 1×")).is_visible()
    assert board.get_by_role("row", name=re.compile("^idler idle")).is_visible()
    assert page.get_by_role("list", name="Route").get_by_role("listitem").all_inner_texts() == [
        "carrier done",
        "answer",
    ]
    assert page.get_by_text("intact", exact=True).is_visible()
    page.get_by_role("list", name="Route").get_by_role("link").click()
    assert page.url.endswith("#work-1-1")


@pytest.mark.parametrize("scripts", [True, False])
def test_hostile_text_of_a_team_stays_text(shop, opened, scripts):
    """Script in task, instruction, reason, a member's work, the feedback and the answer: nothing runs."""
    run_id = shop.start("team", task=shop.evil, user=shop.evil, talk=shop.evil)
    page = opened(shop.serve(), java_script_enabled=scripts)
    assert page.get_by_text(shop.evil).count() >= 3  # whom for, the instruction, the reason
    page.goto(f"{shop.address}/runs/{run_id}")
    page.get_by_role("button", name="Approve", exact=True).click()
    for _ in range(100):
        if page.get_by_role("heading", name=re.compile("^Run .* completed$")).count():
            break
        page.reload()
    for name in ("Decisions", "Verdicts at moments", "Timeline"):
        assert page.get_by_role("list", name=name).get_by_text(shop.evil).count() >= 1, name
    assert page.get_by_role("table", name="Team").get_by_text(shop.evil[:60]).count() >= 1
    assert page.locator("img, script:not([src]), [onerror], a[href^=javascript]").count() == 0


def test_a_team_is_readable_on_a_phone_and_in_the_dark(shop, opened):
    """At 375 pixels nothing is cut off or has to be moved sideways, also with long words."""
    run_id = shop.start("team", task="w" * 3000)
    shop.serve()
    page = opened(shop.url, viewport={"width": 375, "height": 700}, color_scheme="dark")
    page.goto(f"{shop.address}/runs/{run_id}")
    assert page.evaluate("document.documentElement.scrollWidth") == 375
    assert page.get_by_role("list", name="Route").get_by_text("carrier").is_visible()
