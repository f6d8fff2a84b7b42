"""The page in a real browser: it opens without errors, the keys work, axe-core finds nothing, a phone suffices."""

import shutil
from contextlib import contextmanager

import msgspec
import pytest
from flights import founding
from strangers import hostile_report, made_up

from checker.record import read_record
from checker.report.flight import playback
from checker.report.page import page as page_of
from checker.report.places import Source, source_of_engine
from checker.report.render import html

CHROMIUM = shutil.which("chromium")
playwright = pytest.importorskip("playwright.sync_api", reason="no playwright; make test installs it")
axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="no axe-core; make test installs it")
if CHROMIUM is None:
    pytest.skip("no chromium; make test installs it", allow_module_level=True)

DESK, PHONE = {"width": 1280, "height": 900}, {"width": 360, "height": 740}


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as started:
        # As root, as in CI, chromium starts without its sandbox only; it opens our own file.
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def url(report, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(html(page_of(report, source_of_engine(report.engine))), encoding="utf-8")
    return path.as_uri()


@pytest.fixture(scope="module")
def few(report, tmp_path_factory):
    """Each kind of thing once or twice: axe-core takes its time with a long page."""
    names = ("paused-flush-succeeds", "requests-return", "idle-is-true", "pages-conserved")
    kept = [r for r in report.results if r.property in names]
    path = tmp_path_factory.mktemp("few") / "report.html"
    small = msgspec.structs.replace(report, results=[*kept, made_up("unknown")])
    path.write_text(html(page_of(small, source_of_engine(report.engine))), encoding="utf-8")
    return path.as_uri()


@pytest.fixture(scope="module")
def flight(tmp_path_factory):
    folder = tmp_path_factory.mktemp("flight")
    record = read_record(founding(folder / "records", before=100))
    path = folder / "record.html"
    path.write_text(html(playback(record, Source())), encoding="utf-8")
    return path.as_uri()


@contextmanager
def opened(browser, url, size=DESK, **more):
    """A page; whatever it complains of, and whatever it asks the network for, fails the test."""
    context = browser.new_context(viewport=size, reduced_motion="reduce", **more)
    page, said = context.new_page(), []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("dialog", lambda dialog: said.append(dialog.message))
    page.on("request", lambda request: said.append(request.url) if request.url != url else None)
    page.goto(url)
    yield page
    context.close()
    assert said == []


def test_arrow_keys_and_mouse_go_step_by_step(browser, url):
    with opened(browser, url) as page:
        first, second = page.locator("#c1"), page.locator("#c2")
        assert first.locator("output").inner_text() == "1 / 5"
        first.locator("input").focus()
        page.keyboard.press("ArrowRight")
        assert first.locator("output").inner_text() == "2 / 5"
        first.locator("h3").click()
        first.locator("h3").scroll_into_view_if_needed()
        page.evaluate("document.activeElement.blur(); document.querySelector('#c1').scrollIntoView()")
        for _ in range(9):
            page.keyboard.press("ArrowRight")
        assert first.locator("output").inner_text() == "5 / 5"
        page.keyboard.press("ArrowLeft")
        assert first.locator("output").inner_text() == "4 / 5"
        assert second.locator("output").inner_text() == "1 / 4"
        first.locator(".step").nth(2).locator(".told p").first.click()
        assert first.locator("output").inner_text() == "3 / 5"
        assert first.locator(".now").inner_text().startswith("State after step 3")
        assert first.locator(".step.selected .actor").inner_text() == "trainer"
        first.get_by_role("button", name="Next step").click()
        assert "flush_wanted" in first.locator(".now .changed").inner_text()
        assert first.locator(".now .stuck dt").inner_text() == "write_through_submitted stuck"
        box = first.locator("svg").bounding_box()
        page.mouse.click(box["x"] + box["width"] - 8, box["y"] + 10)
        assert first.locator("output").inner_text() == "5 / 5"
        assert "nothing but continue_generation" in first.locator(".ending").inner_text()


def test_on_a_phone_the_state_is_with_its_step(browser, url):
    with opened(browser, url, PHONE) as page:
        first = page.locator("#c1")
        first.get_by_role("button", name="Next step").click()
        assert first.locator(".now").is_hidden()
        assert [state.is_visible() for state in first.locator(".state dl").all()] == [False, True, False, False, False]


def test_without_javascript_every_step_and_state_can_be_read(browser, url):
    with opened(browser, url, java_script_enabled=False) as page:
        assert page.locator(".stepper").first.is_hidden()
        assert page.locator(".step").count() > 40
        assert all(step.is_visible() for step in page.locator("#c1 .step").all())
        state = page.locator("#c1 details.state").first
        state.locator("summary").click()
        assert state.locator("dl").is_visible()
        assert page.locator("#c1 svg").first.is_visible()


def test_a_flight_record_is_played_line_by_line(browser, flight):
    with opened(browser, flight) as page:
        lines, output = page.locator(".step").count(), page.locator("output")
        assert output.inner_text() == f"1 / {lines}"
        page.locator("input").focus()
        page.keyboard.press("End")
        assert output.inner_text() == f"{lines} / {lines}"
        assert page.locator(".now .stuck dt").inner_text() == "write_through_submitted stuck"
        page.locator("svg").first.click(position={"x": 2, "y": 10})
        assert output.inner_text() == f"1 / {lines}"
        assert "nothing that this pause still does" in page.locator(".step").last.inner_text()
        assert page.locator(".ending").inner_text().startswith("Stuck: the flush that is wanted can never be granted")


@pytest.mark.parametrize(("size", "scheme"), [(DESK, "light"), (DESK, "dark"), (PHONE, "light")])
def test_axe_core_finds_nothing_in_a_flight_record(browser, tmp_path, size, scheme):
    path = tmp_path / "record.html"
    path.write_text(html(playback(read_record(founding(tmp_path / "records")), Source())), encoding="utf-8")
    with opened(browser, path.as_uri(), size, color_scheme=scheme) as page:
        found = axe.Axe().run(page)
        assert found.violations_count == 0, found.generate_report()


@pytest.mark.parametrize("width", [320, 768, 1280])
def test_a_flight_record_does_not_scroll_sideways(browser, flight, width):
    with opened(browser, flight, {"width": width, "height": 800}) as page:
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_the_invariant_of_a_proof_can_be_read(browser, url):
    with opened(browser, url, java_script_enabled=False) as page:
        proof = page.locator(".proof", has_text="requests-conserved").first
        proof.locator(".invariant summary").click()
        assert proof.locator(".invariant li").all_inner_texts() == ["arrived = waiting + running + answered"]
        page.locator(".names summary").click()
        assert "requests that ever arrived" in page.locator(".names").inner_text()


@pytest.mark.parametrize(("size", "scheme"), [(DESK, "light"), (DESK, "dark"), (PHONE, "light")])
def test_axe_core_finds_nothing(browser, few, size, scheme):
    with opened(browser, few, size, color_scheme=scheme) as page:
        found = axe.Axe().run(page)
        assert found.violations_count == 0, found.generate_report()


def test_axe_core_would_find_something(browser, few):
    with opened(browser, few) as page:
        page.evaluate("document.querySelector('#c1 input').removeAttribute('aria-label')")
        assert axe.Axe().run(page, "#c1").violations_count > 0


@pytest.mark.parametrize("width", [320, 360, 768, 1024, 1280])
def test_nothing_scrolls_sideways(browser, url, width):
    with opened(browser, url, {"width": width, "height": 800}) as page:
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        cut = "[...document.querySelectorAll('td *, .told *, dd')].filter(e => e.getClientRects().length &&"
        cut += " e.getBoundingClientRect().right > innerWidth && !e.closest('.scroll')).length"
        assert page.evaluate(cut) == 0


@pytest.mark.parametrize("name", ["<script>window.pwned=1</script>", "\"'><img src=x onerror=window.pwned=1>"])
def test_hostile_names_do_nothing(browser, name, tmp_path):
    path = tmp_path / "report.html"
    path.write_text(html(page_of(hostile_report(name), Source())), encoding="utf-8")
    with opened(browser, path.as_uri()) as page:
        page.keyboard.press("ArrowRight")
        assert page.locator("#c1 output").inner_text() == "2 / 2"
        assert page.evaluate("window.pwned") is None
        assert name in page.locator("#c1 .reason").inner_text()


def test_the_policy_stops_what_is_not_ours(browser, url, tmp_path):
    path = tmp_path / "report.html"
    with opened(browser, url) as page:
        text = page.content()
    path.write_text(text.replace("</main>", "<script>window.pwned = 1</script></main>"), encoding="utf-8")
    context = browser.new_context()
    page = context.new_page()
    page.goto(path.as_uri())
    assert page.evaluate("window.pwned") is None
    context.close()
