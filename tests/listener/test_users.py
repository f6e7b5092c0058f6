"""The file of users."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.doubles.certificates import Certificates
from topicfs.listener.errors import ListenerError
from topicfs.listener.security.files import SecurityFiles
from topicfs.listener.security.users import entry, read_users

ALICE, BOB = entry("alice", "a"), entry("bob", "b")


def written(folder: Path, text: str | bytes, mode: int = 0o600) -> Path:
    path = folder / "users"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    path.chmod(mode)
    return path


def test_users_and_passwords(tmp_path: Path) -> None:
    """A password belongs to its user. Comments, empty lines and line ends of Windows are accepted."""
    users = read_users(written(tmp_path, f"# people\r\n{ALICE}\r\n\n{BOB}"))
    assert users.has_password("alice", b"a")
    assert users.has_password("bob", b"b")
    assert not users.has_password("alice", b"b")
    assert not users.has_password("carol", b"a")
    assert "not in the file" not in entry("alice", "not in the file")


@pytest.mark.parametrize("name", ["a:b", "SCRAM-SHA-256=[", "a b", "ü", "a,b=c", "a:SCRAM-SHA-256=[salt=b"])
def test_names(tmp_path: Path, name: str) -> None:
    """A name may contain the separators of the file."""
    users = read_users(written(tmp_path, f"{entry(name, 'x')}\n"))
    assert users.has_password(name, b"x")


@pytest.mark.parametrize(
    ("name", "password"), [("", "x"), ("#a", "x"), ("a\nb", "x"), (" a", "x"), ("a", "")]
)
def test_names_that_no_line_can_have(name: str, password: str) -> None:
    """`entry` refuses a name that a line cannot have, and an empty password."""
    with pytest.raises(ListenerError):
        entry(name, password)


@pytest.mark.parametrize("mode", [0o604, 0o602, 0o601, 0o644])
def test_a_file_that_others_can_access(tmp_path: Path, mode: int) -> None:
    """A file that all users of the machine can access is refused, and the error says what to do."""
    path = written(tmp_path, ALICE, mode)
    with pytest.raises(ListenerError, match=f"chmod o= {path}"):
        read_users(path)
    path.chmod(0o640)
    assert read_users(path).has_password("alice", b"a")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no users"),
        ("# nobody\n", "no users"),
        ("alice:secret\n", "line 1 is not an entry"),
        (f"{ALICE}\n{BOB} \n", "line 2 is not an entry"),
        (f"{ALICE}\n{ALICE}\n", "alice has two lines"),
        (ALICE.replace("SHA-512", "SHA-256"), "line 1 is not an entry"),
        (ALICE.replace("SHA-512", "SHA-1"), "line 1 is not an entry"),
        (ALICE.replace("iterations=16384", "iterations=4095"), "line 1 is not an entry"),
        (ALICE.replace("iterations=16384", "iterations=1000001"), "line 1 is not an entry"),
        (ALICE.replace("salt=", "salt=AAAA"), "line 1 is not an entry"),
        (ALICE.replace("stored_key=", "stored_key=?"), "line 1 is not an entry"),
        (ALICE.replace("iterations=16384", "iterations=8192", 1), "the same number of iterations"),
        (b"\xff", "not UTF-8"),
    ],
)
def test_files_that_are_refused(tmp_path: Path, text: str | bytes, said: str) -> None:
    """A file with an invalid line is refused as a whole; no error shows a key."""
    with pytest.raises(ListenerError, match=said) as caught:
        read_users(written(tmp_path, text))
    assert "stored_key" not in str(caught.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    """A missing file and a directory are errors that name the path."""
    with pytest.raises(ListenerError, match=f"{tmp_path}/none: cannot read the listener's users"):
        read_users(tmp_path / "none")
    with pytest.raises(Exception, match=str(tmp_path)):
        read_users(tmp_path)


def test_a_link_is_followed(tmp_path: Path) -> None:
    """The file may be a link, as in a volume of secrets."""
    written(tmp_path, ALICE)
    (tmp_path / "link").symlink_to(tmp_path / "users")
    assert read_users(tmp_path / "link").has_password("alice", b"a")


def test_unknown_users_look_like_known_ones(tmp_path: Path) -> None:
    """An unknown user always gets the same salt and iterations.

    They stay the same when the file is read again with more users.
    """
    users = read_users(written(tmp_path, ALICE))
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        known, unknown = users.credential("alice", mechanism), users.credential("carol", mechanism)
        assert [len(part) for part in known[:3]] == [len(part) for part in unknown[:3]]
        assert known.iterations == unknown.iterations
        assert unknown != users.credential("dave", mechanism)
        assert unknown == read_users(written(tmp_path, f"{ALICE}\n{BOB}")).credential("carol", mechanism)


def test_certificates_that_cannot_be_used(tmp_path: Path, certificates: Certificates) -> None:
    """A file that is missing, is not PEM, or has an encrypted key is an error that names the file."""
    pair = certificates.pair("listener")
    sealed = certificates.pair("sealed", password="secret")
    authority = certificates.authority
    (tmp_path / "text").write_text("text")
    for certificate, key, client_authority, named in (
        (tmp_path / "none", None, None, "none"),
        (tmp_path / "text", None, None, "text"),
        (pair, tmp_path / "text", None, "text"),
        (pair, sealed, None, "sealed"),
        (sealed, None, None, "without a password"),
        (authority, pair, None, "not the key of the certificate"),
        (authority, None, None, "authority.pem has no private key; name its file: --tls-key FILE"),
        (pair, None, tmp_path / "none", "none"),
        (pair, None, tmp_path / "text", "text"),
    ):
        files = SecurityFiles(certificate=certificate, key=key, client_authority=client_authority)
        with pytest.raises(ListenerError, match=named):
            files.read()


def test_a_key_that_others_can_read(tmp_path: Path, certificates: Certificates) -> None:
    """A key that all users of the machine can read is refused, even if it is in the certificate's file."""
    pair = certificates.pair("private")
    path = tmp_path / "key.pem"
    path.write_bytes(pair.read_bytes())
    path.chmod(0o644)
    for files in (SecurityFiles(certificate=path), SecurityFiles(certificate=pair, key=path)):
        with pytest.raises(
            ListenerError, match=f"every user of this machine can read the key; chmod o= {path}"
        ):
            files.read()
    path.chmod(0o640)
    SecurityFiles(certificate=path).read()
    pair.chmod(0o644)
    SecurityFiles(certificate=pair, key=path).read()
