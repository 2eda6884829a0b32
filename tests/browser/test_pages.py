"""Pages in a real browser: nothing on the console, nothing that runs or is fetched, what is clicked, found and copied,
how fast, and what a reader of the screen gets. Needs Chromium (Debian's) and the dependency group `browser`.
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
from render.test_html import LOG, hostile, log_page, page_of, verify_page
from render.test_html_bench import bench_page
from tfdoctor.cli.matrix import matrix
from tfdoctor.compat import Compat
from tfdoctor.logs.excerpt import excerpt
from tfdoctor.logs.report import diagnose_log
from tfdoctor.plan import Request, recommend
from tfdoctor.plan.answer_table_builder import systems_of
from tfdoctor.plan.arguments import address_commands, find_named_card
from tfdoctor.privacy.redactor import Redactor
from tfdoctor.render.html.log import logs_html
from tfdoctor.render.plan import recommendation_json

if TYPE_CHECKING:
    from collections.abc import Iterator

playwright = pytest.importorskip(
    "playwright.sync_api", reason="the dependency group `browser` is not installed"
)
axe = pytest.importorskip("axe_playwright_python.sync_playwright")

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser"), pytest.mark.timeout(900)]

DRAWN = int(os.environ.get("TFDOCTOR_DRAWN", "500"))
"""Choices that are compared with `recommend`."""
CORPUS = Path(os.environ.get("TFDOCTOR_CORPUS", Path(__file__).parents[3] / "shared" / "corpus" / "logs"))
"""Logs of users: material of the project, not in the repository. Others are those of tests/logs/data."""
LOGS = sorted(path for path in CORPUS.glob("*/log*") if path.is_file()) or sorted(
    (Path(__file__).parents[1] / "logs" / "data").rglob("*.log")
)
LARGEST_EXPLORER = 1_500_000
FIRST_PICTURE, FILTER = 1000.0, 50.0
"""Milliseconds."""


class Opened:
    """A page of a browser, and what it said and asked for."""

    def __init__(self, page: Any, folder: Path) -> None:
        self.page, self.folder = page, folder
        self.said: list[str] = []
        page.on("console", lambda message: self.said.append(message.text))
        page.on("pageerror", lambda error: self.said.append(str(error)))
        page.on("dialog", lambda dialog: (self.said.append(dialog.message), dialog.dismiss()))
        page.on("request", lambda request: self._asked(request.url))

    def _asked(self, url: str) -> None:
        if not url.startswith("file:"):
            self.said.append(f"asked for {url}")

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
        found = running.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture(params=["light", "dark"])
def both(request: pytest.FixtureRequest, browser: Any, tmp_path: Path) -> Iterator[Opened]:
    context = browser.new_context(color_scheme=request.param)
    yield Opened(context.new_page(), tmp_path)
    context.close()


@pytest.fixture
def opened(browser: Any, tmp_path: Path) -> Iterator[Opened]:
    context = browser.new_context()
    found = Opened(context.new_page(), tmp_path)
    yield found
    assert found.said == []
    context.close()


@pytest.fixture(scope="module")
def explorer(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    target = tmp_path_factory.mktemp("explorer") / "matrix.html"
    matrix(html=target)
    return target.read_bytes()


def broken_rules(page: Any) -> list[str]:
    """What axe-core finds."""
    return [
        f"{one['id']}: {[node['html'][:120] for node in one['nodes'][:3]]}"
        for one in axe.Axe().run(page).response["violations"]
    ]


def test_every_machine_and_every_log_renders(opened: Opened) -> None:
    for folder in FOLDERS:
        page = opened.show(page_of(folder))
        assert page.locator(".joint").count() == 9, folder.name
        assert not opened.said, folder.name
    compat = Compat.load()
    assert LOGS
    for path in LOGS:
        content = [path.read_bytes()]
        found = diagnose_log(content, compat, path.name)
        page = opened.show(logs_html([(found, excerpt(content, found))], Redactor()))
        assert page.locator(".verdict").count() == 1
        assert not opened.said, path


def test_hostile_text_does_nothing(opened: Opened, explorer: bytes) -> None:
    page = opened.show(hostile(HOSTS / "plain-pip-install"))
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
def test_nothing_is_wider_than_the_screen_and_axe_finds_nothing(
    both: Opened, explorer: bytes, width: int
) -> None:
    both.page.set_viewport_size({"width": width, "height": 800})
    pages = {
        "broken": page_of(HOSTS / "two-other-cudas"),
        "healthy": page_of(HOSTS / "healthy-one-gpu"),
        "log": log_page(f"{'x' * 3000}\n{LOG}"),
        "verify": verify_page(HOSTS / "no-such-uuid", "x" * 300),
        "bench": bench_page("x" * 300),
        "explorer": explorer,
    }
    for name, content in pages.items():
        page = both.show(content)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, name
        assert broken_rules(page) == [], name
    assert both.said == []


def test_facts_are_searched_and_commands_copied(opened: Opened) -> None:
    page = opened.show(page_of(HOSTS / "plain-pip-install"))
    every = page.locator("#facts tbody tr:visible").count()
    page.fill("#filter", "driver.cuda compute")
    some = page.locator("#facts tbody tr:visible").count()
    assert 0 < some < every
    assert f"{some} of {every}" in page.inner_text("#count")
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


def test_a_line_of_a_log_is_linked_and_unfolded(opened: Opened) -> None:
    noise = "".join(f"step {number}\n" for number in range(40))
    page = opened.show(log_page(f"{noise}{LOG}{noise}"))
    page.locator(".evidence a").first.click()
    assert page.locator("li.hit").first.is_visible()
    assert not page.locator("#L3").is_visible()
    page.evaluate("location.hash = '#L3'")
    assert page.locator("#L3").is_visible()


def test_the_explorer_is_small_and_quick(opened: Opened, explorer: bytes) -> None:
    assert len(explorer) < LARGEST_EXPLORER
    paints = []
    for _ in range(3):  # the best counts: other programs share the machine
        page = opened.show(explorer)
        page.wait_for_timeout(200)
        paint = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0")
        paints.append(paint or FIRST_PICTURE)
    assert min(paints) < FIRST_PICTURE
    took = page.evaluate(
        """() => ["470", "525", "550", "580", "390", "535", "545"].map((driver) => {
          history.replaceState(null, "", `#gpu=NVIDIA+GeForce+RTX+3060&driver=${driver}`);
          const begun = performance.now();
          dispatchEvent(new Event("hashchange"));
          document.body.getBoundingClientRect();
          return performance.now() - begun;
        }).sort((a, b) => a - b)"""
    )
    assert took[1] < FILTER


def test_choices_stand_in_the_address_and_the_back_button_takes_them_back(
    opened: Opened, explorer: bytes
) -> None:
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


def test_the_explorer_by_the_keyboard_alone(opened: Opened, explorer: bytes) -> None:
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


SHOWN = """async (choices) => {
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


def exact_driver(drawn: random.Random) -> str:
    """A version of a driver as nvidia-smi shows one, on Linux or on Windows."""
    branch = drawn.randrange(360, 610)
    if drawn.random() < 0.4:
        return f"{branch}.{drawn.randrange(100):02}"
    return f"{branch}.{drawn.randrange(300)}.{drawn.randrange(30):02}"


def test_the_explorer_says_what_recommend_says(opened: Opened, explorer: bytes) -> None:
    page = opened.show(explorer)
    compat = Compat.load()

    def values(name: str) -> list[str]:
        return [
            str(one)
            for one in page.evaluate(f"[...document.querySelectorAll('{name} option')].map(o => o.value)")
        ]

    drawn = random.Random(20_26)
    cards, pythons, minors = map(values, ("#gpus", "#python", "#tf"))
    systems = {one.word: one for one in systems_of(compat)}
    assert values("#os") == list(systems)
    branches = values("#drivers")
    choices = []
    for _ in range(DRAWN):
        named = {
            "os": drawn.choice(["", "", "wsl", "windows", "macos", *list(systems)[1:]]),
            "gpu": drawn.choice(["", *drawn.sample(cards, 12)]),
            "driver": drawn.choice(["", drawn.choice(branches), exact_driver(drawn), exact_driver(drawn)]),
            "python": drawn.choice(["", "", "", *pythons]),
            "tf": drawn.choice(["", "", "", *minors]),
        }
        choices.append({name: value for name, value in named.items() if value})
    options = conflicts = 0
    for start in range(0, len(choices), 100):
        some = choices[start : start + 100]
        for choice, shown in zip(some, page.evaluate(SHOWN, some), strict=True):
            system = systems[choice.get("os", "linux")]
            host = dataclasses.replace(
                system.host,
                cards=(find_named_card(compat, choice["gpu"]),) if "gpu" in choice else (),
                driver=choice.get("driver"),
            )
            request = Request(tensorflow=choice.get("tf"), python=choice.get("python"))
            answer = recommend(compat, request, host, nearest=False)
            if system.addressed:
                answer = address_commands(
                    answer, [choice["gpu"]] if "gpu" in choice else [], choice.get("driver")
                )
            said = recommendation_json(answer)
            assert [one["recipe"] for one in shown["options"]] == [
                one["recipe"] for one in said["options"]
            ], choice
            for one, other in zip(shown["options"], said["options"], strict=True):
                assert f"TensorFlow {other['tensorflow']} on Python {other['python']} " in one["title"], (
                    choice
                )
                assert one["commands"] == "\n".join(other["commands"]), choice
                assert sorted(one["texts"]) == sorted(caveat["text"] for caveat in other["caveats"]), choice
            if said["conflict"] is None:
                options += 1
                continue
            conflicts += 1
            told = {
                reason["text"] for one in [said["conflict"], *said["rejected"]] for reason in one["reasons"]
            }
            assert shown["reasons"], choice
            assert set(shown["reasons"]) <= told, choice
    assert options > DRAWN // 10
    assert conflicts > DRAWN // 10
