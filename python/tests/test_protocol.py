"""The worker's protocol, without PyTorch: parsing, reasons, and who may write to stdout."""

import json
import os
import pathlib
import subprocess
import sys
import unittest

PYTHON = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(PYTHON))

from loka.worker import protocol
from loka.worker.memory import Handle
from loka.worker.protocol import BadRequest, Refused


class Parsing(unittest.TestCase):
    def test_a_request_comes_back(self):
        self.assertEqual(protocol.parse(b'{"id": 3, "do": "hello"}\n'), {"id": 3, "do": "hello"})

    def test_what_is_no_request_is_said(self):
        for line, reason in (
            (b"torch 2.11\n", "not JSON"),
            (b"\xff\xfe\n", "not JSON"),
            (b"[1]\n", "a request is a JSON object"),
            (b'{"do": "run"}\n', "integer id"),
            (b'{"id": true, "do": "run"}\n', "integer id"),
            (b'{"id": 1}\n', "says what to do"),
        ):
            with self.subTest(line=line), self.assertRaisesRegex(BadRequest, reason):
                protocol.parse(line)

    def test_sizes_and_gemms_are_checked(self):
        for value in (0, -1, "4", None, 1.5, True):
            with self.subTest(value=value), self.assertRaisesRegex(BadRequest, "'m' must be a whole number"):
                protocol.size_of({"m": value}, "m")
        with self.assertRaisesRegex(BadRequest, "unknown GEMM 'bprop'"):
            protocol.gemm_of({"gemm": "bprop"})

    def test_a_reason_is_one_line(self):
        error = RuntimeError("\n  scale_b must have  shape 4 x 6\nException raised from foo.cpp:12\n")
        self.assertEqual(protocol.reason_of(error), "RuntimeError: scale_b must have shape 4 x 6")
        self.assertEqual(protocol.reason_of(Refused("too old")), "too old")
        self.assertEqual(protocol.reason_of(MemoryError()), "MemoryError")
        self.assertLessEqual(len(protocol.reason_of(ValueError("x" * 9000))), protocol.MAX_REASON + 20)


class Handles(unittest.TestCase):
    def test_an_ipc_handle(self):
        handle = Handle({"ipc": "0a" * 64, "offset": 256, "bytes": 24, "dtype": "f32", "shape": [2, 3]})
        self.assertEqual((handle.ipc, handle.offset, handle.shape, handle.is_copied), (b"\n" * 64, 256, (2, 3), False))

    def test_a_file_handle(self):
        handle = Handle({"file": "/tmp/a", "dtype": "bf16", "shape": [4]})
        self.assertEqual((handle.num_bytes, handle.is_copied), (8, True))

    def test_broken_handles(self):
        good = {"ipc": "00" * 64, "offset": 0, "bytes": 8, "dtype": "f32", "shape": [2]}
        for change, reason in (
            ({"dtype": "f16"}, "unknown dtype 'f16'"),
            ({"shape": [0]}, "shape is a list"),
            ({"shape": []}, "shape is a list"),
            ({"ipc": "zz"}, "'ipc' in hex"),
            ({"ipc": None}, "'ipc' in hex"),
            ({"ipc": "00"}, "has 64 bytes, not 1"),
            ({"bytes": 12}, "has 8 bytes, not 12"),
            ({"offset": -1}, "offset"),
        ):
            with self.subTest(change=change), self.assertRaisesRegex(BadRequest, reason):
                Handle({**good, **change})


class Process(unittest.TestCase):
    """The real worker, with whatever this Python has."""

    def talk(self, text, program=("-m", "loka.worker")):
        environment = {**os.environ, "PYTHONPATH": str(PYTHON), "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run([sys.executable, *program], input=text, env=environment, capture_output=True, timeout=300)
        return done, [json.loads(line) for line in done.stdout.splitlines()]

    def test_hello_lists_every_kernel_with_a_reason_or_none(self):
        done, replies = self.talk(b'{"id": 1, "do": "hello", "protocol": 2}\n')
        self.assertEqual(done.returncode, 0)
        kernels = replies[0]["result"]["kernels"]
        self.assertEqual(len(kernels), 11)
        for kernel in kernels:
            self.assertEqual(kernel["available"], kernel["reason"] is None, kernel)

    def test_another_version_is_told_before_anything_loads(self):
        _, replies = self.talk(b'{"id": 1, "do": "hello", "protocol": 99}\n')
        self.assertEqual(replies[0]["result"]["protocol"], protocol.VERSION)
        self.assertEqual(replies[0]["result"]["kernels"], [])

    def test_a_bad_request_costs_itself_only(self):
        _, replies = self.talk(
            b'nonsense\n\xff\xff\n{"id": 4, "do": "dance"}\n'
            b'{"id": 5, "do": "run", "kernel": "nobody/knows"}\n{"id": 6, "do": "release"}\n{"id": 7, "do": "shutdown"}\n'
            b'{"id": 8, "do": "release"}\n'
        )
        self.assertEqual([(reply["id"], reply["ok"]) for reply in replies], [(-1, False), (-1, False), (4, False), (5, False), (6, True), (7, True)])
        self.assertEqual(replies[2]["reason"], "unknown request 'dance'")
        self.assertEqual(replies[3]["reason"], "unknown kernel 'nobody/knows'")

    def test_nothing_else_reaches_stdout(self):
        program = (
            "import os, subprocess, sys\n"
            "from loka.worker import protocol\n"
            "channel = protocol.Channel.take()\n"
            "print('from print')\n"
            "os.write(1, b'from C\\n')\n"
            "subprocess.run([sys.executable, '-c', 'print(\"from a child\")'])\n"
            "assert sys.stdin.read() == ''\n"
            "for line in channel:\n"
            "    channel.send({'id': protocol.parse(line)['id']})\n"
            "sys.stdout.flush()\n"
        )
        done, replies = self.talk(b'{"id": 9, "do": "x"}\n', ("-c", program))
        self.assertEqual(replies, [{"id": 9}], done.stderr)
        for text in (b"from print", b"from C", b"from a child"):
            self.assertIn(text, done.stderr)


if __name__ == "__main__":
    unittest.main()
