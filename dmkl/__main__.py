"""`python -m dmkl` and the `dmkl` command."""

import sys


def main() -> None:
    from dmkl.cli.main import main as run

    sys.exit(run())


if __name__ == "__main__":
    main()
