"""`python -m mdv.cli` is `mdv`."""

from mdv.cli import main

if __name__ == "__main__":
    main()
