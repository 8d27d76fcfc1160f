"""`python -m trellis` is the same as `trellis`."""

from trellis.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
