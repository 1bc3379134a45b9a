"""The files of the page, read as text: what no browser test would notice."""

import re

from app.cli.workers import NO_LEASE
from app.dashboard.assets import FOLDER, all_assets

SCRIPTS = {path.name: path.read_text() for path in FOLDER.glob("*.js")}
INDEX = (FOLDER / "index.html").read_text()
STYLE = (FOLDER / "style.css").read_text()


def test_every_file_of_the_folder_is_sent() -> None:
    assert set(all_assets()) == {path.name for path in FOLDER.iterdir()}


def test_no_script_turns_text_into_html_or_code() -> None:
    for name, text in SCRIPTS.items():
        found = re.findall(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|DOMParser", text
        )
        assert found == [], name


def test_the_page_has_no_inline_script_or_style_and_names_no_other_host() -> None:
    assert re.findall(r"<script(?![^>]*\bsrc=)|<style|\son\w+=|\sstyle=|javascript:", INDEX) == []
    for text in (INDEX, STYLE, *SCRIPTS.values()):
        assert re.findall(r"(?:https?:)?//[a-z0-9.-]+\.[a-z]{2,}", text) == []


def test_the_key_is_kept_in_the_session_and_sent_in_the_header_only() -> None:
    everything = "\n".join(SCRIPTS.values())
    assert re.findall(r"localStorage|document\.cookie|indexedDB", everything) == []
    uses = [line.strip() for line in everything.splitlines() if "key.get()" in line and "Bearer" not in line]
    assert sorted(uses) == [
        "const asked = key.get();",
        'if (key.get() !== asked) throw new ApiError(0, "Signed out meanwhile.");',
        "if (key.get()) enter();",
        'if (key.get()) tell(name, "");',
    ]


def test_scripts_import_files_that_are_there_and_names_that_these_export() -> None:
    for name, text in SCRIPTS.items():
        for names, file in re.findall(r'import (.+?) from "\./(.+?)";', text):
            assert file in SCRIPTS, f"{name} imports {file}"
            for imported in re.findall(r"[A-Za-z_]\w*", names) if names.startswith("{") else []:
                assert re.search(rf"export (async )?(const|function|class) {imported}\b", SCRIPTS[file]), imported


def test_every_place_that_a_script_fills_is_in_the_page() -> None:
    ids = set(re.findall(r'id="([\w-]+)"', INDEX))
    places = set(re.findall(r"\s(data-[\w-]+)", INDEX))
    for text in SCRIPTS.values():
        assert set(re.findall(r'byId\("([\w-]+)"\)', text)) <= ids
        assert set(re.findall(r'stamp\("([\w-]+)"\)', text)) <= ids
        assert set(re.findall(r"\[(data-[\w-]+)\]", text)) <= places


def test_the_reasons_of_workers_read_as_on_the_command_line() -> None:
    block = SCRIPTS["words.js"].partition("NO_LEASE = {")[2].partition("};")[0]
    assert dict(re.findall(r'(\w+): "(.*)",', block)) == NO_LEASE
