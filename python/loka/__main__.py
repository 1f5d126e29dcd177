"""`python -m loka ...`: the program."""

import os
import subprocess
import sys

from loka.program.binary import LokaError, find_binary


def main() -> int:
    """Runs it with this process's arguments; gives its exit code."""
    try:
        program = str(find_binary())
    except LokaError as error:
        print(error, file=sys.stderr)
        return 2
    command = [program, *sys.argv[1:]]
    if os.name == "posix":
        os.execv(program, command)
    return subprocess.run(command).returncode


if __name__ == "__main__":
    sys.exit(main())
