"""A program that feeds one of `targets` from atheris, which follows the branches that an input reaches.

    python tests/fuzz/guided.py wire -max_total_time=60 CORPUS

The first argument names the target, the others are libFuzzer's.
"""

import sys

import atheris

with atheris.instrument_imports(include=["lictor"]):
    import targets

if __name__ == "__main__":
    atheris.Setup([sys.argv[0], *sys.argv[2:]], targets.PROGRAMS[sys.argv[1]])
    atheris.Fuzz()
