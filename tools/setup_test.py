#!/usr/bin/env python3
"""What tools/setup does where an earlier call was killed or the disk was full."""
import os
import pathlib
import resource
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent

# In place of `python3 -m venv`: an environment whose pip installs a program uv that does nothing.
PYTHON = f"""#!/bin/bash
[ "$1 $2" = "-m venv" ] || exec {sys.executable} "$@"
shift 2
echo "$*" >>made
[ "$1" != --clear ] || {{ shift; rm -rf "$1"; }}
mkdir -p "$1/bin" "$1/lib/python3.11/site-packages/pip"
touch "$1/pyvenv.cfg"
cp path/venv_python "$1/bin/python"
"""
VENV_PYTHON = """#!/bin/bash
[ -d .venv/lib/python3.11/site-packages/pip ] || { echo "No module named pip" >&2; exit 1; }
[[ $* != *stdin* ]] || cat >/dev/null
[[ $* == *--help* ]] || cp path/cmake .venv/bin/uv
"""
# As the real one: it ends with 0 whatever it could not write.
BIBLE = """#!/bin/bash
{ echo "Ge1:1 In the beginning"; yes "Ps1:1 a verse" | head -n 31100; echo "Rev22:21 Amen."; } 2>/dev/null
exit 0
"""


class Setup(unittest.TestCase):
    def setUp(self):
        keep = tempfile.TemporaryDirectory()
        self.addCleanup(keep.cleanup)
        self.root = pathlib.Path(keep.name)
        self.venv = self.root / ".venv"
        self.corpus = self.root / ".data/local_text"
        self.text = self.corpus / "source/bible-kjv.txt"
        for name, text in (("cmake", "#!/bin/sh\necho cmake version 3.30.0\n"), ("python3", PYTHON), ("venv_python", VENV_PYTHON),
                           ("bible", BIBLE), ("dpkg-query", "#!/bin/sh\necho install ok installed\n"),
                           ("df", "#!/bin/sh\necho 99999999\n")):
            self.put("path/" + name, text).chmod(0o755)
        (self.root / "tools").mkdir()
        shutil.copy(HERE / "setup", self.root / "tools/setup")
        self.put("tools/requirements.lock", "uv==1\n")

    def put(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def setup(self, *options, largest=resource.RLIM_INFINITY):
        """Files of more than `largest` bytes are not written, as on a full disk."""
        return subprocess.run([self.root / "tools/setup", *options], capture_output=True, text=True, restore_signals=False,
                              env={**os.environ, "PATH": f"{self.root / 'path'}:{os.environ['PATH']}"},
                              preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (largest, largest)))

    def ready(self, *options):
        done = self.setup(*options)
        self.assertEqual((done.returncode, done.stdout.split("\n")[-2:]), (0, ["setup: ready", ""]), done.stderr)

    def refused(self, words, *options, **how):
        done = self.setup(*options, **how)
        self.assertEqual(done.returncode, 3, done.stdout)
        self.assertIn(words, done.stderr)

    def whole(self):
        return len(self.text.read_text().splitlines()) == 31102

    def testASecondCallWritesNothing(self):
        self.ready()
        before = self.text.stat().st_mtime_ns
        (self.root / "made").unlink()
        self.ready()
        self.assertEqual(self.text.stat().st_mtime_ns, before)
        self.assertFalse((self.root / "made").exists())

    def testATextThatDoesNotFitIsAnError(self):
        self.refused("of 31102 verses: free disk space and call again", largest=100_000)
        self.assertFalse(self.text.exists())
        self.ready()
        self.assertTrue(self.whole())

    def testACutTextAndWhatWasMadeOfItAreMadeAnew(self):
        cut = "Ge1:1 In the beginning\nGe1:2 And the ear"
        for bytes_of_source, left in ((len(cut), False), (len(cut) + 1, True)):
            self.put(".data/local_text/source/bible-kjv.txt", cut)
            self.put(".data/local_text/manifest.json", f'{{"sources": [{{\n  "bytes": {bytes_of_source},\n}}]}}\n')
            self.put(".data/local_text/train_00000.tokens", "")
            self.ready()
            self.assertTrue(self.whole())
            for name in ("manifest.json", "train_00000.tokens"):
                self.assertEqual((self.corpus / name).exists(), left)

    def testATextOfAPersonStays(self):
        self.put(".data/local_text/source/bible-kjv.txt", "my own text\n")
        self.refused("move it to another name")
        self.assertEqual(self.text.read_text(), "my own text\n")
        self.ready("--no-data")

    def half_made(self):
        self.put(".venv/pyvenv.cfg", "")
        (self.venv / "lib/python3.11/site-packages/setuptools").mkdir(parents=True)
        self.put(".venv/bin/python", VENV_PYTHON).chmod(0o755)

    def testAnEnvironmentWithoutPipIsMadeAnew(self):
        self.half_made()
        self.ready("--no-data")
        self.assertTrue((self.venv / "bin/uv").exists())
        self.assertFalse((self.venv / "lib/python3.11/site-packages/setuptools").exists())

    def testAnEnvironmentThatHoldsSomethingElseIsNotCleared(self):
        for name in (".venv/lib/python3.11/site-packages/torch/x", ".venv/notes/x"):
            self.half_made()
            mine = self.put(name, "")
            self.refused(f"holds '{mine.parent.name}'", "--no-data")
            self.assertTrue(mine.exists())
            shutil.rmtree(self.venv)

    def testAnInterpreterThatIsGoneIsPutBack(self):
        self.ready("--no-data")
        package = self.put(".venv/lib/python3.11/site-packages/torch/x", "")
        (self.venv / "bin/python").unlink()
        self.put("tools/requirements.lock", "uv==2\n")
        self.ready("--no-data")
        self.assertTrue(package.exists())


if __name__ == "__main__":
    unittest.main()
