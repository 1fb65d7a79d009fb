#!/usr/bin/env python3
"""Which changes make tools/passed_tests run a test again."""
import importlib.machinery
import importlib.util
import io
import contextlib
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent


def load():
    loader = importlib.machinery.SourceFileLoader("passed_tests", str(HERE / "passed_tests"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("passed_tests", loader))
    loader.exec_module(module)
    return module


class PassedTests(unittest.TestCase):
    def setUp(self):
        self.keep = tempfile.TemporaryDirectory()
        self.root = pathlib.Path(self.keep.name)
        self.folder = self.root / "build"
        (self.folder / "bin").mkdir(parents=True)
        (self.root / ".gitignore").write_text("build\n")
        for name in ("kernel_test", "run_test", "program"):
            self.put(f"build/bin/{name}", name)
        self.put("config.json", "{}")
        for command in (["init", "-q"], ["add", "-A"], ["-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qm", "all"]):
            subprocess.run(["git", "-C", self.root, *command], check=True)
        self.module = load()
        self.module.ROOT = self.root
        self.module.tests_of = lambda preset, options: [self.entry("kernel_test", ["cpu", "alone"]), self.entry("run_test", ["cpu"])]

    def tearDown(self):
        self.keep.cleanup()

    def entry(self, name, labels):
        return {"name": name, "command": [str(self.folder / "bin" / name)], "properties": [{"name": "LABELS", "value": labels}]}

    def put(self, name, text):
        (self.root / name).write_text(text)

    def same(self):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            self.module.same(self.folder, "cpu")
        names = out.getvalue().split("\n")[:-1]
        self.assertEqual(names[-1], "of 2")
        return names[:-1]

    def ran(self, **results):
        """What ctest writes: run, fail (a failure in it) or notrun."""
        self.same()
        cases = "".join(f'<testcase name="{name}" status="{"run" if result == "run" else result}">'
                        + ("<failure/>" if result == "fail" else "") + "</testcase>" for name, result in results.items())
        self.put("build/junit.xml", f"<testsuite>{cases}</testsuite>")
        self.module.record(self.folder, str(self.folder / "junit.xml"))

    def both_passed(self):
        self.ran(kernel_test="run", run_test="run")
        self.assertEqual(self.same(), ["kernel_test", "run_test"])

    def testNothingIsTheSameAtFirst(self):
        self.assertEqual(self.same(), [])

    def testAnyFileOfTheCheckoutConcernsAllButTestsAlone(self):
        for name in ("config.json", "new_file.txt"):
            self.both_passed()
            self.put(name, "other " + name)
            self.assertEqual(self.same(), ["kernel_test"])
        self.both_passed()
        (self.root / "config.json").unlink()
        self.assertEqual(self.same(), ["kernel_test"])

    def testAnyProgramConcernsAllButTestsAlone(self):
        self.both_passed()
        self.put("build/bin/program", "other")
        self.assertEqual(self.same(), ["kernel_test"])

    def testItsOwnProgramConcernsATestAlone(self):
        self.both_passed()
        self.put("build/bin/kernel_test", "other")
        self.assertEqual(self.same(), [])

    def testWhatFailedOrWasSkippedRunsAgain(self):
        for result in ("fail", "notrun"):
            self.both_passed()
            self.ran(run_test=result)
            self.assertEqual(self.same(), ["kernel_test"])

    def testTwoStatesOfATestAreKept(self):
        self.both_passed()
        self.put("build/bin/program", "of the other preset")
        self.both_passed()
        self.put("build/bin/program", "program")
        self.assertEqual(self.same(), ["kernel_test", "run_test"])

    def testVariablesCount(self):
        self.both_passed()
        self.module.os.environ["NSA_KERNELS"] = "sm80"
        self.addCleanup(self.module.os.environ.pop, "NSA_KERNELS")
        self.assertEqual(self.same(), [])


# In place of ctest: one test, which fails where the file "broken" lies; with KILLED set it dies before it writes anything.
CTEST = """#!/bin/bash
[[ $* != *--show-only* ]] || { echo '{"tests": [{"name": "t", "command": ["'$PWD'/build/release/bin/t"], "properties": []}]}'; exit; }
[ -z "${KILLED:-}" ] || kill -9 $$
while [ "$1" != --output-junit ]; do shift; done
[ ! -e broken ] || { echo '<s><testcase name="t" status="fail"><failure/></testcase></s>' >"$2"; exit 8; }
echo '<s><testcase name="t" status="run"/></s>' >"$2"
"""


class ToolsTest(unittest.TestCase):
    """tools/test itself, with programs that do nothing in place of those that it calls."""

    def setUp(self):
        keep = tempfile.TemporaryDirectory()
        self.addCleanup(keep.cleanup)
        self.root = pathlib.Path(keep.name)
        for name in ("tools/setup", "tools/corpus", "path/cmake", "path/chromium", "build/release/bin/t"):
            self.program(name, "#!/bin/sh\n")
        self.program("tools/jobs", "#!/bin/sh\necho 1\n")
        self.program("path/ctest", CTEST)
        for name in ("test", "passed_tests"):
            shutil.copy(HERE / name, self.root / "tools" / name)
        (self.root / ".gitignore").write_text("build\n")
        for command in (["init", "-q"], ["add", "-A"], ["-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qm", "all"]):
            subprocess.run(["git", "-C", self.root, *command], check=True)

    def program(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def ends(self, **variables):
        path = f"{self.root / 'path'}:{os.environ['PATH']}"
        return subprocess.run([self.root / "tools/test"], env={**os.environ, "PATH": path, **variables},
                              capture_output=True, text=True).returncode

    def testAKilledCtestPassesNothing(self):
        self.assertEqual(self.ends(), 0)
        (self.root / "broken").write_text("")
        self.assertEqual(self.ends(KILLED="1"), 137)
        self.assertEqual(self.ends(), 8, "a test that fails counts as passed before")


if __name__ == "__main__":
    unittest.main()
