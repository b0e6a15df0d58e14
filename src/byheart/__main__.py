"""`python -m byheart` is the command `byheart`."""

from byheart.cli import main

if __name__ == "__main__":
    main()
