"""Writes docs/images/report.png: the first counterexample of `checker report`, as chromium shows it.

Drawn by hand when the page changes its looks, and compared by nobody: fonts differ from machine to machine.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parents[1]
WIDTH, HEIGHT, STEP = 1000, 560, 4


def written(folder: Path) -> str:
    """The page, as an address."""
    page = folder / "report.html"
    command = [sys.executable, "-m", "checker", "report", "--profile", "sglang-0.5.23", "--loop", "normal"]
    # Refuted is what it shows, so its exit code is 1.
    subprocess.run([*command, "--mode", "retract", "-o", str(page)], cwd=ROOT, check=False)  # noqa: S603 - our own command
    return page.as_uri()


def main() -> None:
    """One picture."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as started:
        # As root chromium starts without its sandbox only; it opens our own file.
        browser = started.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(
            viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light", reduced_motion="reduce"
        )
        page.goto(written(Path(folder)))
        case = page.locator("#c1")
        for _ in range(STEP - 1):
            case.get_by_role("button", name="Next step").click()
        case.evaluate("element => element.scrollIntoView()")
        page.screenshot(path=str(ROOT / "docs" / "images" / "report.png"))
        browser.close()


if __name__ == "__main__":
    main()
