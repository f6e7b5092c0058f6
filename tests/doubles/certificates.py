"""PEM files that openssl makes: an authority, and pairs of a key and a certificate that the authority has signed."""

from __future__ import annotations

import subprocess
from pathlib import Path


class Certificates:
    """A folder of certificates. The file of a pair contains the key first and then the certificate."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.authority = self._authority("authority")
        self.stranger = self._authority("stranger")
        """Another authority, which signed none of the pairs."""

    def pair(self, name: str, *, host: str = "localhost", expired: bool = False, password: str = "") -> Path:
        """Make a key, encrypted if `password` is given, and a certificate of `host` for clients and servers."""
        key, request, certificate = (self._folder / f"{name}.{suffix}" for suffix in ("key", "csr", "crt"))
        secret = ["-passout", f"pass:{password}"] if password else ["-nodes"]
        self._run(
            "req",
            "-new",
            "-newkey",
            "rsa:2048",
            *secret,
            "-keyout",
            key,
            "-out",
            request,
            "-subj",
            f"/CN={name}",
        )
        extensions = self._folder / f"{name}.ext"
        # Python 3.13 requires all the extensions that RFC 5280 requires.
        extensions.write_text(
            f"subjectAltName=DNS:{host}\nsubjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid\n"
        )
        # `openssl ca` is the only openssl command that can set when a certificate expires.
        (self._folder / "index.txt").write_text("")
        configuration = self._folder / "ca.cnf"
        configuration.write_text(
            f"[ca]\ndefault_ca=own\n[own]\ndatabase={self._folder}/index.txt\nnew_certs_dir={self._folder}\n"
            "default_md=sha256\npolicy=any\nrand_serial=yes\n[any]\ncommonName=supplied\n"
        )
        end = "20200102000000Z" if expired else "20400101000000Z"
        self._run(
            *("ca", "-batch", "-notext", "-config", configuration, "-in", request, "-out", certificate),
            *("-cert", self.authority, "-keyfile", self._folder / "authority.key", "-extfile", extensions),
            *("-startdate", "20200101000000Z", "-enddate", end),
        )
        path = self._folder / f"{name}.pem"
        path.touch(mode=0o600)
        path.write_text(key.read_text() + certificate.read_text())
        return path

    def _authority(self, name: str) -> Path:
        key, certificate = self._folder / f"{name}.key", self._folder / f"{name}.pem"
        self._run(
            *("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", certificate),
            *("-days", "3650", "-subj", f"/CN={name}", "-addext", "keyUsage=critical,keyCertSign,cRLSign"),
        )
        return certificate

    def _run(self, *words: object) -> None:
        subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True)
