"""The packages of this environment are those that requirements.txt and docs/reference/conformance.md name."""

import unittest

import support


class Versions(unittest.TestCase):
    def test_they_are_installed_as_pinned(self):
        for package, version in support.pinned().items():
            self.assertEqual(support.installed(package), version, package)

    def test_pytorch_is_that_of_the_tests_of_python(self):
        lines = (support.ROOT / "python/requirements-test.txt").read_text(encoding="utf-8").splitlines()
        pins = dict(line.split("==") for line in lines if "==" in line)
        self.assertEqual(support.installed("torch"), pins["torch"])

    def test_the_table_of_the_docs_names_them(self):
        table = (support.ROOT / "docs/reference/conformance.md").read_text(encoding="utf-8")
        for package in (*support.FRAMEWORKS, "torch"):
            self.assertRegex(table, rf"\b{package} {support.installed(package)}\b")


if __name__ == "__main__":
    unittest.main()
