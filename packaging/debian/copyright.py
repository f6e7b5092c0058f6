"""Prints the package's copyright file: for topicfs, and for the Python packages in the same folder.

Run by the Python of that folder. The license texts of the packages are in their `.dist-info` folders.
"""

from __future__ import annotations

import importlib.metadata
import sysconfig


def license_of(package: importlib.metadata.Distribution) -> str:
    """Return the license that a package declares, in one line."""
    about = package.metadata
    classified = [
        text.rpartition(" :: ")[2] for text in about.get_all("Classifier", []) if text.startswith("License")
    ]
    return (
        about.get("License-Expression")
        or ", ".join(classified)
        or (about.get("License") or "").partition("\n")[0]
    )


folder = sysconfig.get_paths()["purelib"]
print("Copyright the topicfs developers.\n")
print("topicfs is licensed under the Apache License, Version 2.0, whose text is in")
print("/usr/share/common-licenses/Apache-2.0.\n")
print(
    f"Beside it stand other Python packages, unchanged, in {folder.partition('/usr/')[1]}{folder.partition('/usr/')[2]}."
)
print("Their licenses, whose texts are in NAME-VERSION.dist-info there:\n")
for package in sorted(
    importlib.metadata.distributions(path=[folder]), key=lambda one: one.metadata["Name"].lower()
):
    if package.metadata["Name"] != "topicfs":
        print(f"  {package.metadata['Name']} {package.version}: {license_of(package)}")
