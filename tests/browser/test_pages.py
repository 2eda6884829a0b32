"""The HTML pages in a real browser: no console messages, no scripts of the data, no requests, and working controls.

Measures speed and accessibility, too. Needs Debian's Chromium and the dependency group `browser`.
"""

from __future__ import annotations

import dataclasses
import os
import random
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from recorded import FOLDERS, HOSTS
from render.test_html import LOG, log_page, make_hostile_page, make_page, verify_page
from render.test_html_bench import bench_page
from tfdoctor.cli.matrix import matrix
from tfdoctor.compat import Compat
from tfdoctor.core.privacy.redactor import Redactor
from tfdoctor.logs.excerpt import make_excerpt
from tfdoctor.logs.report import diagnose_log
from tfdoctor.planning import Request, recommend
from tfdoctor.planning.answer_table_builder import list_systems
from tfdoctor.planning.arguments import add_machine_arguments, parse_gpu
from tfdoctor.render.html.log import make_logs_html
from tfdoctor.render.plan import make_recommendation_json

if TYPE_CHECKING:
    from collections.abc import Iterator

playwright = pytest.importorskip(
    "playwright.sync_api", reason="the dependency group `browser` is not installed"
)
axe = pytest.importorskip("axe_playwright_python.sync_playwright")

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser"), pytest.mark.timeout(900)]

RANDOM_CHOICES = int(os.environ.get("TFDOCTOR_DRAWN", "500"))
"""Number of random choices that are compared with `recommend`."""
CORPUS = Path(os.environ.get("TFDOCTOR_CORPUS", Path(__file__).parents[3] / "shared" / "corpus" / "logs"))
"""Folder of users' logs, which are not in the repository; without it, the logs of tests/logs/data are used."""
LOGS = sorted(path for path in CORPUS.glob("*/log*") if path.is_file()) or sorted(
    (Path(__file__).parents[1] / "logs" / "data").rglob("*.log")
)
MAX_EXPLORER_BYTES = 1_700_000
MAX_FIRST_PAINT_MS, MAX_FILTER_MS = 1000.0, 50.0
"""Milliseconds until the first paint, and of one filter operation."""


class PageLog:
    """A browser page with its console messages, errors, dialogs and requests."""

    def __init__(self, page: Any, folder: Path) -> None:
        self.page, self.folder = page, folder
        self.messages: list[str] = []
        page.on("console", lambda message: self.messages.append(message.text))
        page.on("pageerror", lambda error: self.messages.append(str(error)))
        page.on("dialog", lambda dialog: (self.messages.append(dialog.message), dialog.dismiss()))
        page.on("request", lambda request: self._record_request(request.url))

    def _record_request(self, url: str) -> None:
        if not url.startswith("file:"):
            self.messages.append(f"asked for {url}")

    def show(self, content: bytes, *, choice: str = "") -> Any:
        target = self.folder / "page.html"
        target.write_bytes(content)
        self.page.goto("about:blank")
        self.page.goto(f"{target.as_uri()}{choice}")
        return self.page


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("there is no chromium")
    with playwright.sync_playwright() as running:
        launched = running.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield launched
        launched.close()


@pytest.fixture(params=["light", "dark"])
def page_log(request: pytest.FixtureRequest, browser: Any, tmp_path: Path) -> Iterator[PageLog]:
    context = browser.new_context(color_scheme=request.param)
    yield PageLog(context.new_page(), tmp_path)
    context.close()


@pytest.fixture
def opened(browser: Any, tmp_path: Path) -> Iterator[PageLog]:
    context = browser.new_context()
    page_log = PageLog(context.new_page(), tmp_path)
    yield page_log
    assert page_log.messages == []
    context.close()


@pytest.fixture(scope="module")
def explorer(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    target = tmp_path_factory.mktemp("explorer") / "matrix.html"
    matrix(html=target)
    return target.read_bytes()


def list_violations(page: Any) -> list[str]:
    """Return the accessibility violations that axe-core reports."""
    return [
        f"{violation['id']}: {[node['html'][:120] for node in violation['nodes'][:3]]}"
        for violation in axe.Axe().run(page).response["violations"]
    ]


def test_every_machine_and_every_log_renders(opened: PageLog) -> None:
    for folder in FOLDERS:
        page = opened.show(make_page(folder))
        assert page.locator(".joint").count() == 9, folder.name
        assert not opened.messages, folder.name
    compat = Compat.load()
    assert LOGS
    for path in LOGS:
        content = [path.read_bytes()]
        log_report = diagnose_log(content, compat, path.name)
        page = opened.show(make_logs_html([(log_report, make_excerpt(content, log_report))], Redactor()))
        assert page.locator(".verdict").count() == 1
        assert not opened.messages, path


def test_hostile_text_does_nothing(opened: PageLog, explorer: bytes) -> None:
    page = opened.show(make_hostile_page(HOSTS / "plain-pip-install"))
    assert page.locator("img").count() == 0
    page = opened.show(log_page(f"</script><img src=x onerror=alert(1)>\n{LOG}"))
    assert page.locator("img").count() == 0
    bad = "%3C/script%3E%3Cimg%20src=x%20onerror=alert(1)%3E"
    page = opened.show(explorer, choice=f"#gpu={bad}&driver={bad}&python={bad}&tf={bad}")
    assert page.locator("img").count() == 0
    page.fill("#gpu", "</script><img src=x onerror=alert(1)>")
    page.keyboard.press("Tab")
    assert "not in the list" in page.inner_text("#gpu-note")


@pytest.mark.parametrize("width", [360, 768, 1280])
def test_pages_fit_the_screen_and_are_accessible(page_log: PageLog, explorer: bytes, width: int) -> None:
    page_log.page.set_viewport_size({"width": width, "height": 800})
    pages = {
        "broken": make_page(HOSTS / "two-other-cudas"),
        "healthy": make_page(HOSTS / "healthy-one-gpu"),
        "log": log_page(f"{'x' * 3000}\n{LOG}"),
        "verify": verify_page(HOSTS / "no-such-uuid", "x" * 300),
        "bench": bench_page("x" * 300),
        "explorer": explorer,
    }
    for name, content in pages.items():
        page = page_log.show(content)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, name
        assert list_violations(page) == [], name
    assert page_log.messages == []


def test_facts_are_filtered_and_commands_copied(opened: PageLog) -> None:
    page = opened.show(make_page(HOSTS / "plain-pip-install"))
    total = page.locator("#facts tbody tr:visible").count()
    page.fill("#filter", "driver.cuda compute")
    matches = page.locator("#facts tbody tr:visible").count()
    assert 0 < matches < total
    assert f"{matches} of {total}" in page.inner_text("#count")
    page.fill("#filter", "")
    page.evaluate(
        "navigator.clipboard.writeText = (text) => { window.copied = text; return Promise.resolve(); }"
    )
    button = page.locator("button.copy").first
    button.click()
    assert button.inner_text() == "Copied"
    assert page.evaluate("window.copied") == page.locator(".verdict code").first.inner_text()
    page.locator(".verdict a.code").first.click()
    assert page.url.endswith("#TFD201")


def test_linked_log_line_is_unfolded(opened: PageLog) -> None:
    noise = "".join(f"step {number}\n" for number in range(40))
    page = opened.show(log_page(f"{noise}{LOG}{noise}"))
    page.locator(".evidence a").first.click()
    assert page.locator("li.hit").first.is_visible()
    assert not page.locator("#L3").is_visible()
    page.evaluate("location.hash = '#L3'")
    assert page.locator("#L3").is_visible()


def test_explorer_is_small_and_fast(opened: PageLog, explorer: bytes) -> None:
    assert len(explorer) < MAX_EXPLORER_BYTES
    paints = []
    for _ in range(3):  # the fastest run counts: other programs share the machine
        page = opened.show(explorer)
        page.wait_for_timeout(200)
        paint = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0")
        paints.append(paint or MAX_FIRST_PAINT_MS)
    assert min(paints) < MAX_FIRST_PAINT_MS
    durations = page.evaluate(
        """() => ["470", "525", "550", "580", "390", "535", "545"].map((driver) => {
          history.replaceState(null, "", `#gpu=NVIDIA+GeForce+RTX+3060&driver=${driver}`);
          const begun = performance.now();
          dispatchEvent(new Event("hashchange"));
          document.body.getBoundingClientRect();
          return performance.now() - begun;
        }).sort((a, b) => a - b)"""
    )
    assert durations[1] < MAX_FILTER_MS


def test_choices_are_in_the_address_and_the_history(opened: PageLog, explorer: bytes) -> None:
    page = opened.show(explorer)
    page.fill("#gpu", "rtx 3060")
    page.keyboard.press("Tab")
    page.fill("#driver", "550.54.14")
    page.keyboard.press("Tab")
    page.select_option("#python", "3.11")
    page.locator("#releases a", has_text="2.15").click()
    assert page.url.endswith("#gpu=GeForce+RTX+3060&driver=550.54.14&python=3.11&tf=2.15")
    assert "2.15.1 works" in page.inner_text("#answer h2")
    assert page.input_value("#tf") == "2.15"
    page.go_back()
    assert page.input_value("#tf") == ""
    page.go_back()
    assert page.input_value("#python") == ""
    page.goto(page.url.partition("#")[0] + "#gpu=Tesla+K80&driver=470&tf=2.21")
    page.wait_for_timeout(50)
    assert page.input_value("#gpu") == "Tesla K80"
    assert page.locator("#answer .verdict.bad").count() == 1
    page.click("#reset")
    assert page.input_value("#gpu") == ""
    assert page.input_value("#os") == "linux"


def test_explorer_works_with_the_keyboard_alone(opened: PageLog, explorer: bytes) -> None:
    page = opened.show(explorer)
    page.focus("#os")
    page.keyboard.type("Windows, in")
    page.keyboard.press("Tab")
    page.keyboard.type("rtx 3060")
    page.keyboard.press("Tab")
    page.keyboard.type("12.4")
    page.keyboard.press("Tab")
    assert "not a version" in page.inner_text("#driver-wrong")
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Control+a")
    page.keyboard.type("512.15")
    page.keyboard.press("Tab")
    assert page.inner_text("#driver-wrong") == ""
    assert page.evaluate("document.activeElement.id") == "python"
    assert page.url.endswith("#os=wsl&gpu=GeForce+RTX+3060&driver=512.15")
    assert "2.14" in page.inner_text("#answer h2")  # 12.x needs 527.41 on Windows


READ_ANSWERS_SCRIPT = """async (choices) => {
  const found = [];
  for (const choice of choices) {
    const hash = `#${new URLSearchParams(choice)}`;
    if (location.hash !== hash) {
      location.hash = hash;
      await new Promise((done) => addEventListener("hashchange", done, { once: true }));
    }
    const all = [...document.querySelectorAll("#answer article")];
    found.push({
      options: all.map((one) => ({
        recipe: one.dataset.recipe,
        title: one.querySelector("h3").textContent,
        commands: one.querySelector("code").textContent,
        texts: [...one.querySelectorAll("p:not(.small)")].map((text) => text.textContent.replace(/^But /, "")),
      })),
      reasons: [...document.querySelectorAll("#answer .why li")].map((one) => one.textContent),
    });
  }
  return found;
}"""


def make_random_driver(generator: random.Random) -> str:
    """Return a random driver version as nvidia-smi prints it on Linux or on Windows."""
    branch = generator.randrange(360, 610)
    if generator.random() < 0.4:
        return f"{branch}.{generator.randrange(100):02}"
    return f"{branch}.{generator.randrange(300)}.{generator.randrange(30):02}"


def test_explorer_gives_the_answers_of_recommend(opened: PageLog, explorer: bytes) -> None:
    page = opened.show(explorer)
    compat = Compat.load()

    def values(name: str) -> list[str]:
        return [
            str(item)
            for item in page.evaluate(f"[...document.querySelectorAll('{name} option')].map(o => o.value)")
        ]

    generator = random.Random(20_26)
    cards, pythons, minors = map(values, ("#gpus", "#python", "#tf"))
    systems_by_name = {item.key: item for item in list_systems(compat)}
    assert values("#os") == list(systems_by_name)
    branches = values("#drivers")
    choices = []
    for _ in range(RANDOM_CHOICES):
        choice_values = {
            "os": generator.choice(["", "", "wsl", "windows", "macos", *list(systems_by_name)[1:]]),
            "gpu": generator.choice(["", *generator.sample(cards, 12)]),
            "driver": generator.choice(
                ["", generator.choice(branches), make_random_driver(generator), make_random_driver(generator)]
            ),
            "python": generator.choice(["", "", "", *pythons]),
            "tf": generator.choice(["", "", "", *minors]),
        }
        choices.append({name: value for name, value in choice_values.items() if value})
    options = conflicts = 0
    for start in range(0, len(choices), 100):
        batch = choices[start : start + 100]
        for choice, displayed in zip(batch, page.evaluate(READ_ANSWERS_SCRIPT, batch), strict=True):
            system = systems_by_name[choice.get("os", "linux")]
            host = dataclasses.replace(
                system.host,
                cards=(parse_gpu(compat, choice["gpu"]),) if "gpu" in choice else (),
                driver=choice.get("driver"),
            )
            request = Request(tensorflow=choice.get("tf"), python=choice.get("python"))
            answer = recommend(compat, request, host, with_suggestions=False)
            if system.needs_machine_arguments:
                answer = add_machine_arguments(
                    answer, [choice["gpu"]] if "gpu" in choice else [], choice.get("driver")
                )
            expected_answer = make_recommendation_json(answer)
            assert [item["recipe"] for item in displayed["options"]] == [
                item["recipe"] for item in expected_answer["options"]
            ], choice
            for item, expected in zip(displayed["options"], expected_answer["options"], strict=True):
                assert (
                    f"TensorFlow {expected['tensorflow']} on Python {expected['python']} " in item["title"]
                ), choice
                assert item["commands"] == "\n".join(expected["commands"]), choice
                assert sorted(item["texts"]) == sorted(caveat["text"] for caveat in expected["caveats"]), (
                    choice
                )
            if expected_answer["conflict"] is None:
                options += 1
                continue
            conflicts += 1
            expected_reasons = {
                reason["text"]
                for item in [expected_answer["conflict"], *expected_answer["rejected"]]
                for reason in item["reasons"]
            }
            assert displayed["reasons"], choice
            assert set(displayed["reasons"]) <= expected_reasons, choice
    assert options > RANDOM_CHOICES // 10
    assert conflicts > RANDOM_CHOICES // 10
