"""A person decides in a real browser: by mouse, by keyboard, without JavaScript, on a phone, in the dark."""

import re

import pytest

pytestmark = pytest.mark.browser


def test_a_refund_is_approved_by_clicking_and_the_run_finishes_in_the_page(shop, opened):
    """The page that opens after the click shows the end of the run by itself."""
    shop.start()
    page = opened(shop.serve())
    assert "token" not in page.url
    assert page.title() == "(1) Inbox · Lictor"
    assert page.get_by_role("heading", name="clerk wants to run refund").is_visible()
    assert page.get_by_role("row", name="amount 30.0 number").is_visible()
    page.get_by_role("button", name="Approve", exact=True).click()
    page.get_by_text("I was told: paid 30.0").first.wait_for()
    assert page.get_by_role("heading", name=re.compile("^Run .* completed$")).is_visible()
    assert page.get_by_text("by human:ana, via web").is_visible()
    assert page.get_by_text("intact", exact=True).is_visible()
    assert shop.paid() == ["42 30.0 Parcel lost by the carrier."]
    page.get_by_role("link", name="Inbox").click()
    assert page.get_by_role("heading", name="Nothing waits").is_visible()


def test_a_killed_process_is_no_loss(shop, opened):
    """The process of the run is killed while it waits, then the server; another one carries the decision out, once."""
    shop.start_and_kill()
    page = opened(shop.serve())
    page.get_by_role("heading", name="clerk wants to run refund").wait_for()
    shop.kill()
    page.get_by_text("The server does not answer.").wait_for()
    page.goto(shop.serve())
    page.get_by_role("button", name="Approve", exact=True).click()
    page.get_by_text("I was told: paid 30.0").first.wait_for()
    assert shop.paid() == ["42 30.0 Parcel lost by the carrier."]


def test_a_rejection_goes_to_the_agent_with_its_reason(shop, opened):
    """The browser itself asks for the reason; then the agent reads it."""
    shop.start()
    page = opened(shop.serve())
    reject = page.get_by_role("button", name="Reject")
    reject.click()
    assert page.url.endswith("/inbox")  # the field is required
    page.get_by_label("Why not?").fill("It was delivered.\nAsk the neighbour.")
    reject.click()
    page.get_by_text("Ask the neighbour.").first.wait_for()
    assert page.get_by_role("listitem").filter(has_text="rejected").first.is_visible()
    assert shop.paid() == []


def test_an_edited_call_runs_as_edited(shop, opened):
    """A wrong value is said with what was typed still there; the right one runs."""
    shop.start()
    page = opened(shop.serve())
    page.get_by_text("Change the arguments …").click()
    page.get_by_label("amount JSON").fill("twelve")
    page.get_by_label("note text").fill("Half of it.\n<b>Sorry</b>")
    page.get_by_role("button", name="Approve with these").click()
    assert page.get_by_role("alert").get_by_text("amount: 'twelve' is no JSON").is_visible()
    page.get_by_label("amount JSON").fill("15")
    page.get_by_role("button", name="Approve with these").click()
    page.get_by_text("I was told:").first.wait_for()
    assert shop.paid() == ["42 15.0 Half of it.", "<b>Sorry</b>"]
    page.get_by_role("listitem").get_by_role("link", name="refund").click()
    assert page.get_by_role("heading", name="Ran with").is_visible()
    assert page.get_by_text("<b>Sorry</b>").is_visible()


def test_a_result_is_given_by_hand(shop, opened):
    """Respond: the text is the result."""
    shop.start()
    page = opened(shop.serve())
    page.get_by_text("Give the result yourself …").click()
    page.get_by_label("The result.").fill("paid in cash")
    page.get_by_role("button", name="Answer with this").click()
    page.get_by_text("I was told: paid in cash").first.wait_for()
    assert shop.paid() == []


def test_everything_works_without_javascript(shop, opened):
    """The same approval with scripts switched off; an ordinary reload shows the end."""
    shop.start()
    page = opened(shop.serve(), java_script_enabled=False)
    page.get_by_role("button", name="Approve", exact=True).click()
    assert "/runs/" in page.url
    for _ in range(100):
        if page.get_by_text("I was told: paid 30.0").count():
            break
        page.reload()
    assert page.get_by_text("I was told: paid 30.0").first.is_visible()
    assert shop.paid() == ["42 30.0 Parcel lost by the carrier."]
    page.get_by_text("Transcript").click()
    assert page.get_by_text("My order 42 never arrived.").is_visible()


def test_the_keyboard_is_enough(shop, opened):
    """Tab reaches everything in the order of the page, focus is always seen, Enter and Space act."""
    shop.start()
    page = opened(shop.serve())
    reached = []
    for _ in range(12):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.innerText || document.activeElement.name"))
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    order = ["Skip to the content", "Lictor", "Inbox", "Runs"]
    assert reached[:4] == order
    assert [each for each in reached if each in ("scope", "Approve", "text", "Reject", "Change the arguments …")] == [
        "scope", "Approve", "text", "Reject", "Change the arguments …",
    ]  # fmt: skip
    page.reload()
    for _ in range(20):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.innerText") == "Approve":
            break
    page.keyboard.press("Enter")
    page.get_by_text("I was told: paid 30.0").first.wait_for()


def test_a_screen_reader_hears_what_a_button_does(shop, opened):
    """Landmarks, headings, labels, and the consequence as the description of its button."""
    shop.start()
    page = opened(shop.serve())
    approve = page.get_by_role("button", name="Approve", exact=True)
    described = approve.get_attribute("aria-describedby")
    assert page.locator(f"[id='{described}']").inner_text() == "refund runs once, with exactly these arguments."
    assert page.get_by_role("main").count() == page.get_by_role("banner").count() == 1
    assert page.get_by_role("navigation", name="Pages").get_by_role("link").count() == 2
    assert page.get_by_role("article", name="clerk wants to run refund").count() == 1
    fields = page.locator("textarea, input:not([type=hidden])")
    unnamed = fields.evaluate_all("(all) => all.filter((each) => !each.labels.length).length")
    ids = page.locator("[id]").evaluate_all("(all) => all.map((each) => each.id)")
    doubled = len(ids) - len(set(ids))
    assert (unnamed, doubled, page.locator("html").get_attribute("lang")) == (0, 0, "en")


@pytest.mark.parametrize("path", ["/inbox", "/runs", "/runs/{run}", "/requests/{request}", "/runs/nope"])
def test_a_phone_never_scrolls_sideways(shop, opened, path):
    """375 pixels are enough for every page, whatever is in it; the buttons are large enough for a thumb."""
    shop.start("evil", user="u" * 300)
    run_id = shop.start("long")
    page = opened(shop.serve(), viewport={"width": 375, "height": 700}, has_touch=True)
    request = page.locator("article").last.get_attribute("id").removeprefix("request-")
    page.goto(shop.address + path.format(run=run_id, request=request))
    for box in page.locator("details").all():
        box.evaluate("(box) => { box.open = true; }")
    assert page.evaluate("document.documentElement.scrollWidth") == 375
    assert (
        page.evaluate("Math.min(99, ...[...document.querySelectorAll('button')].map((each) => each.offsetHeight))")
        >= 44
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_can_be_read_in_the_light_and_in_the_dark(shop, opened, scheme):
    """Text against its background has a contrast of at least 4.5 to 1, buttons and badges included."""
    run_id = shop.start()
    page = opened(shop.serve(), color_scheme=scheme)
    dark = page.evaluate("getComputedStyle(document.documentElement).backgroundColor") == "rgb(22, 21, 20)"
    assert dark == (scheme == "dark")
    for path in ("/inbox", f"/runs/{run_id}", "/runs"):
        page.goto(shop.address + path)
        worst = page.evaluate(CONTRAST)
        assert worst["ratio"] >= 4.5, worst


CONTRAST = """() => {
  const light = (colour) => {
    const [r, g, b] = colour.match(/[\\d.]+/g).map(Number).map((each) => {
      const part = each / 255;
      return part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (element) => {
    for (let each = element; each !== null; each = each.parentElement) {
      const colour = getComputedStyle(each).backgroundColor;
      if (colour !== "rgba(0, 0, 0, 0)") return colour;
    }
    return "rgb(255, 255, 255)";
  };
  let worst = { ratio: 99, text: "" };
  for (const element of document.querySelectorAll("body *")) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!own || !element.checkVisibility()) continue;
    const [a, b] = [light(getComputedStyle(element).color), light(behind(element))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < worst.ratio) worst = { ratio, text: element.textContent.trim().slice(0, 60) };
  }
  return worst;
}"""


# ---- live -------------------------------------------------------------------------------------


def test_the_inbox_follows_what_happens_elsewhere(shop, opened):
    """A new request appears without a reload, and goes when somebody decides it on the command line."""
    shop.start()
    page = opened(shop.serve())
    page.get_by_role("button", name="Approve", exact=True).click()
    page.get_by_text("I was told: paid 30.0").first.wait_for()
    page.get_by_role("link", name="Inbox").click()
    page.get_by_role("heading", name="Nothing waits").wait_for()
    shop.start()
    page.get_by_role("heading", name="clerk wants to run refund").wait_for()
    assert page.title() == "(1) Inbox · Lictor"
    request = page.locator("article").get_attribute("id").removeprefix("request-")
    shop.decide("reject", request, "-m", "no", "--as", "human:bob")
    page.get_by_role("heading", name="Nothing waits").wait_for()


def test_a_card_never_moves_under_a_pointer_that_aims_at_it(shop, opened):
    """The first of two requests is decided elsewhere while a person aims at its button: they do not hit the second."""
    shop.start()
    shop.start("long")
    page = opened(shop.serve())
    first = page.locator("article").first
    request = first.get_attribute("id").removeprefix("request-")
    first.get_by_role("button", name="Approve", exact=True).hover()
    before = first.bounding_box()
    shop.decide("reject", request, "-m", "no", "--as", "human:bob")
    page.get_by_text("Something changed since you opened this page.").wait_for()
    assert first.bounding_box() == before
    page.mouse.down()
    page.mouse.up()
    page.get_by_role("heading", name="Already decided").wait_for()
    assert shop.paid() == []


def test_a_page_that_just_changed_takes_no_click(shop, opened):
    """For half a second forms do not react to the pointer: a click was meant for what stood there before."""
    shop.start()
    page = opened()
    page.add_init_script("""
      window.seen = [];
      document.addEventListener("DOMContentLoaded", () => {
        const main = document.getElementById("main");
        new MutationObserver(() => window.seen.push(main.className)).observe(main, { attributes: true });
      });
    """)
    page.goto(shop.serve())
    page.locator("main:not(.settling)").wait_for()
    assert page.evaluate("window.seen") == [""]  # it was settling before anybody could look
    page.evaluate("document.getElementById('main').className = 'settling'")
    form = page.get_by_role("form", name="approve")
    assert form.evaluate("(form) => getComputedStyle(form).pointerEvents") == "none"


def test_a_half_filled_form_is_never_thrown_away(shop, opened):
    """Somebody else decides meanwhile: the page says so, keeps the text, and the late decision is refused in words."""
    shop.start()
    page = opened(shop.serve())
    page.get_by_label("Why not?").fill("Because I am")
    request = page.locator("article").get_attribute("id").removeprefix("request-")
    shop.decide("approve", request, "--as", "human:bob")
    page.get_by_text("Something changed since you opened this page.").wait_for()
    assert page.get_by_label("Why not?").input_value() == "Because I am"
    page.get_by_role("button", name="Reject").click()
    assert page.get_by_role("heading", name="Already decided").is_visible()
    assert page.get_by_text("was already approved by human:bob").is_visible()
    page.get_by_role("link", name="Look at the request").click()
    assert page.get_by_text("human:bob", exact=True).is_visible()
