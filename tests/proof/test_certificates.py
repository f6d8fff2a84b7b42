"""Certificates: what the second solver refuses, in a process of its own, and with which words."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

import checker.certify
from checker.certify import ENOUGH, Asked, CertificateError
from checker.verify import Request, verify
from spec.profile import load_profile

PROPERTY = "paused-flush-succeeds"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The certificate of the founding case, written by the command's own way."""
    root = tmp_path_factory.mktemp("certificates")
    profile = load_profile("sglang-0.5.23").with_remedies(["reap-while-paused"])
    report = verify(
        Request(
            profile, properties=(PROPERTY,), loops=("normal",), modes=("retract",), workers=1, certificates=str(root)
        )
    )
    assert report.verdict == "proved"
    (folder,) = root.glob(f"{PROPERTY}-normal-retract-none-sglang-0.5.23-reap-while-paused-*")
    return folder


@pytest.fixture
def folder(written: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(written, tmp_path / "certificate"))


def certify(*folders: Path) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "checker.certify", *map(str, folders)], capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout, done.stderr


def manifest(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode((folder / "manifest.json").read_bytes())
    return found


def rewrite(folder: Path, data: object) -> None:
    (folder / "manifest.json").write_bytes(msgspec.json.encode(data))


def forge(folder: Path, old: str, new: str) -> None:
    """Change the first claim's script, and its digest with it."""
    path = folder / "000.smt2"
    text = path.read_text(encoding="utf-8")
    assert old in text
    text = text.replace(old, new, 1)
    path.write_text(text, encoding="utf-8")
    data = manifest(folder)
    data["claims"][0]["sha256"] = hashlib.sha256(text.encode()).hexdigest()
    rewrite(folder, data)


def test_certificate_holds(folder: Path) -> None:
    code, out, err = certify(folder)
    assert (code, err) == (0, "")
    assert out == "certificate: 139 obligations, all unsat\n1 certificates, 139 obligations re-checked by cvc5\n"


def test_manifest_says_what_was_proved(written: Path) -> None:
    data = manifest(written)
    assert (data["schema"], data["property"], data["loop"]) == (1, PROPERTY, "normal")
    assert data["remedies"] == ["reap-while-paused"]
    assert data["configuration"]["mode"] == "retract"
    assert [len(c["obligations"]) for c in data["claims"]] == [106, 33]
    assert [c["method"] for c in data["claims"]] == ["ranking", "induction"]
    assert data["fairness"]["EventLoop"] == "weak"
    assert set(data["claims"][0]["rank"]) == {
        "write_through_submitted", "write_through_ready", "load_back_submitted", "load_back_ready", "late",
    }  # fmt: skip
    assert "EventLoop where True" in data["claims"][0]["helpful"]


def test_edited_script(folder: Path) -> None:
    path = folder / "000.smt2"
    path.write_text(path.read_text(encoding="utf-8") + "; a word more\n", encoding="utf-8")
    code, _, err = certify(folder)
    assert code == 4
    assert err == f"checker: {path}: not the file that the manifest names (sha256 differs)\n"


def test_forged_script_that_does_not_hold(folder: Path) -> None:
    # The first assertion is emptied: what it asserts has a model.
    text = (folder / "000.smt2").read_text(encoding="utf-8")
    first = text[text.index("(assert") : text.index("(check-sat)")]
    forge(folder, first, "(assert true)\n")
    code, _, err = certify(folder)
    assert code == 4
    assert err.startswith(f"checker: {folder / '000.smt2'}: obligation ")
    assert err.endswith(": cvc5 says sat, not unsat\n")


def test_script_with_an_answer_more(folder: Path) -> None:
    forge(folder, "(set-logic QF_LIA)\n", "(set-logic QF_LIA)\n(push 1)\n(assert false)\n(check-sat)\n(pop 1)\n")
    code, _, err = certify(folder)
    assert code == 4
    assert err == f"checker: {folder / '000.smt2'}: 107 answers for 106 obligations\n"


def test_script_that_asserts_outside_an_obligation(folder: Path) -> None:
    # Every obligation would be unsatisfiable.
    forge(folder, "(set-logic QF_LIA)\n", "(set-logic QF_LIA)\n(assert false)\n")
    code, _, err = certify(folder)
    assert code == 4
    assert err == f"checker: {folder / '000.smt2'}:2: an assertion outside push and pop\n"


def test_script_that_does_not_parse(folder: Path) -> None:
    forge(folder, "(set-logic QF_LIA)\n", "(set-logic QF_LIA)\n(push 1)\n(assert (no-such-function 1))\n(pop 1)\n")
    code, _, err = certify(folder)
    assert code == 4
    assert err.startswith(f"checker: {folder / '000.smt2'}: cvc5 cannot read the script: ")


def test_script_that_says_reset(folder: Path) -> None:
    # Whatever is said between the obligations, each must be answered unsat.
    forge(folder, "(check-sat)", "(reset-assertions)(check-sat)")
    code, _, err = certify(folder)
    assert code == 4
    assert "a command that no certificate has: (reset-assertions)" in err


def test_missing_script(folder: Path) -> None:
    (folder / "001.smt2").unlink()
    code, _, err = certify(folder)
    assert code == 2
    assert err.startswith(f"checker: {folder / '001.smt2'}: cannot be read: ")


def test_missing_manifest(folder: Path) -> None:
    (folder / "manifest.json").unlink()
    code, _, err = certify(folder)
    assert code == 2
    assert err.startswith(f"checker: {folder}: not a certificate: [Errno 2] No such file or directory")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"", "Input data was truncated"),
        (b"{", "Input data was truncated"),
        (b"\xff", "JSON is malformed: invalid character (byte 0)"),
        (b"[]", "Expected `object`, got `array`"),
        (b"{}", "Object missing required field `schema`"),
        (b"[" * 100_000, "Expected `object`, got `array`"),
        (b'{"claims": ' + b"[" * 100_000, "Expected `object`, got `array` - at `$.claims[0]`"),
        (b'{"x": ' + b"[" * 100_000, "maximum recursion depth exceeded"),
    ],
)
def test_broken_manifest(folder: Path, text: bytes, says: str) -> None:
    (folder / "manifest.json").write_bytes(text)
    code, out, err = certify(folder)
    assert (code, out) == (2, "")
    assert err.startswith(f"checker: {folder}: not a certificate: {says}")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("schema", 2, "schema must be 1, is 2"),
        ("claims", 7, "Expected `array`, got `int` - at `$.claims`"),
        ("claims", [7], "Expected `object`, got `int` - at `$.claims[0]`"),
        ("claims", [{"file": "000.smt2"}], "Object missing required field `sha256` - at `$.claims[0]`"),
    ],
)
def test_manifest_with_another_shape(folder: Path, key: str, value: object, says: str) -> None:
    rewrite(folder, manifest(folder) | {key: value})
    code, _, err = certify(folder)
    assert (code, err) == (2, f"checker: {folder}: not a certificate: {says}\n")


@pytest.mark.parametrize("name", ["../certificate/000.smt2", "/000.smt2", "a/000.smt2", "..", ".", "", "000\0.smt2"])
def test_manifest_that_names_a_file_elsewhere(folder: Path, name: str) -> None:
    # The first names the very file that the manifest is about: only the way to it is refused.
    data = manifest(folder)
    data["claims"][0]["file"] = name
    rewrite(folder, data)
    code, _, err = certify(folder)
    problem = f"claims[0].file must be the name of a file in the folder, is {name!r}"
    assert (code, err) == (2, f"checker: {folder}: not a certificate: {problem}\n")


def test_manifest_with_fewer_obligations(folder: Path) -> None:
    data = manifest(folder)
    data["claims"][0]["obligations"].pop()
    rewrite(folder, data)
    code, _, err = certify(folder)
    assert code == 4
    assert err == f"checker: {folder / '000.smt2'}: 106 answers for 105 obligations\n"


def test_manifest_without_claims(folder: Path) -> None:
    data = manifest(folder)
    data["claims"] = []
    rewrite(folder, data)
    code, _, err = certify(folder)
    assert (code, err) == (4, f"checker: {folder}: a certificate without obligations proves nothing\n")


def test_manifest_with_an_empty_claim(folder: Path) -> None:
    data = manifest(folder)
    data["claims"][1]["obligations"] = []
    rewrite(folder, data)
    code, _, err = certify(folder)
    assert (code, err) == (4, f"checker: {folder}: a certificate without obligations proves nothing\n")


SCRIPT = "(set-logic QF_LIA)\n(declare-const a {sort})\n{blocks}"
NEVER = "; 1: never\n(push 1)\n(assert (and (= a {one}) (= a {two})))\n(check-sat)\n(pop 1)\n"
INT, BOOL = {"one": "1", "two": "2"}, {"one": "true", "two": "false"}


def asked_of(asked: Asked, blocks: str, sort: str = "Int") -> list[str]:
    return list(asked.answers(SCRIPT.format(sort=sort, blocks=blocks)))


def test_the_same_obligation_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[str] = []
    original = checker.certify.answers_of
    monkeypatch.setattr(checker.certify, "answers_of", lambda text: (sent.append(text), original(text))[1])
    asked = Asked()
    assert asked_of(asked, 2 * NEVER.format(**INT)) == ["unsat", "unsat"]
    assert asked_of(asked, 3 * NEVER.format(**INT)) == ["unsat", "unsat", "unsat"]
    assert [text.count("(check-sat)") for text in sent] == [2, 0]
    assert len(asked) == 1


def test_what_is_satisfiable_is_asked_each_time() -> None:
    asked, open_ = Asked(), NEVER.format(one="1", two="1")
    assert asked_of(asked, open_) == ["sat"]
    assert asked_of(asked, NEVER.format(**INT) + open_) == ["unsat", "sat"]
    assert len(asked) == 1


def test_the_same_words_over_other_sorts_are_asked_anew() -> None:
    asked, same_words = Asked(), "(push 1)\n(assert (and b (= a a) (not (= a a))))\n(check-sat)\n(pop 1)\n"
    assert asked_of(asked, "(declare-const b Bool)\n" + same_words) == ["unsat"]
    assert asked_of(asked, NEVER.format(**BOOL), "Bool") == ["unsat"]
    assert len(asked) == 1
    with pytest.raises(CertificateError, match="cannot read the script"):
        asked_of(asked, "(declare-const b Int)\n" + same_words, "Bool")


@pytest.mark.parametrize("more", ["(check-sat)", "(declare-const b Int)", "(assert (= a 3))"])
def test_what_has_not_the_form_of_an_obligation_is_never_taken_for_one(more: str) -> None:
    asked = Asked()
    assert set(asked_of(asked, NEVER.format(**INT).replace("(check-sat)", f"{more}\n(check-sat)"))) == {"unsat"}
    assert len(asked) == 0


def test_one_bad_certificate_among_good_ones(written: Path, folder: Path) -> None:
    (folder / "001.smt2").unlink()
    code, out, err = certify(written, folder)
    assert code == 2
    assert out.startswith(f"{written.name}: 139 obligations, all unsat\n")
    assert "re-checked" not in out
    assert "001.smt2: cannot be read" in err


def many(written: Path, below: Path, count: int) -> list[Path]:
    return [shutil.copytree(written, below / f"certificate-{number:02}") for number in range(count)]


def test_many_are_shared_out_and_told_in_order(written: Path, tmp_path: Path) -> None:
    every = many(written, tmp_path, 2 * ENOUGH)
    code, out, err = certify(*every)
    assert (code, err) == (0, "")
    told = [f"{one.name}: 139 obligations, all unsat" for one in every]
    assert out.splitlines() == [*told, f"{len(every)} certificates, {139 * len(every)} obligations re-checked by cvc5"]


def told_by_the_command(*arguments: str) -> tuple[int, list[str], str]:
    command = [sys.executable, "-m", "checker", "certify", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    holds = [line.split(":")[0] for line in done.stdout.splitlines() if line.endswith(", all unsat")]
    return done.returncode, holds, done.stderr


def test_the_certificates_of_several_folders_are_told_by_name_and_once(written: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for below, name in ((first, "b"), (second, "a")):
        shutil.copytree(written, below / name)
    again = f"{second}/../first"
    assert told_by_the_command(str(first), str(second), again) == (0, ["a", "b"], "")
    shutil.copytree(written, second / "b")
    assert told_by_the_command(str(first), str(second)) == (0, ["a", f"{first}/b", f"{second}/b"], "")


def test_a_certificate_that_holds_others_is_checked_too(folder: Path, written: Path) -> None:
    """What is in it must not hide that it does not hold."""
    forge(folder, "(check-sat)", "(check-sat)\n(check-sat)")
    shutil.copytree(written, folder / "inner")
    code, _, err = told_by_the_command(str(folder))
    assert code == 4
    assert f"{folder}/000.smt2: " in err


def test_a_link_whose_certificate_is_gone_is_said(written: Path, tmp_path: Path) -> None:
    shutil.copytree(written, tmp_path / "a")
    (tmp_path / "b").symlink_to(tmp_path / "nowhere")
    code, told, err = told_by_the_command(str(tmp_path))
    assert (code, told) == (2, ["a"])
    assert f"{tmp_path}/b: not a certificate" in err


def test_an_empty_name_is_no_folder() -> None:
    code, told, err = told_by_the_command("")
    assert (code, told) == (2, [])
    assert err == "checker: FOLDER is '', as of a variable that is not set; the current folder is: .\n"


@pytest.mark.parametrize("ending", [b"\xff\n", b"\r\n"])
def test_other_bytes_are_another_file(folder: Path, ending: bytes) -> None:
    path = folder / "000.smt2"
    path.write_bytes(path.read_bytes().replace(b"\n", ending))
    code, _, err = certify(folder)
    assert (code, err) == (4, f"checker: {path}: not the file that the manifest names (sha256 differs)\n")


def test_of_two_that_do_not_hold_the_first_is_told(written: Path, tmp_path: Path) -> None:
    """Each is in the share of another worker, and the second is the first thing that its worker sees."""
    every = many(written, tmp_path, 2 * ENOUGH)
    (every[ENOUGH] / "000.smt2").unlink()
    forge(every[ENOUGH - 1], "(check-sat)", "(check-sat)\n(check-sat)")
    code, out, err = certify(*every)
    assert code == 4
    assert out.splitlines() == [f"{one.name}: 139 obligations, all unsat" for one in every[: ENOUGH - 1]]
    assert f"{every[ENOUGH - 1].name}/000.smt2: " in err
    assert every[ENOUGH].name not in err


def test_without_cvc5(folder: Path) -> None:
    blocked = "import sys; sys.modules['cvc5'] = None\nfrom checker.certify import main\nsys.exit(main(sys.argv[1:]))\n"
    done = subprocess.run([sys.executable, "-c", blocked, str(folder)], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "checker: no cvc5 here; install it with: in the checkout, pip install '.[certify]'\n"


def test_certify_imports_neither_z3_nor_the_prover(folder: Path) -> None:
    watched = (
        "import sys\n"
        "from checker.certify import main\n"
        "code = main(sys.argv[1:])\n"
        "print([m for m in ('z3', 'spec', 'checker.proof', 'checker.workbench') if m in sys.modules])\n"
        "sys.exit(code)\n"
    )
    done = subprocess.run([sys.executable, "-c", watched, str(folder)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("[]\n")


@pytest.mark.parametrize("property_id", ["control-answered", "requests-return", "paused-work-ends"])
def test_certificates_of_other_proofs(tmp_path: Path, property_id: str) -> None:
    # One has an empty rank, one a rank of flags and counters, one counts events.
    profile = load_profile("sglang-0.5.23")
    verify(
        Request(
            profile,
            properties=(property_id,),
            loops=("normal",),
            modes=("retract",),
            workers=1,
            certificates=str(tmp_path),
        )
    )
    code, _, err = certify(*sorted(tmp_path.iterdir()))
    assert (code, err) == (0, "")
