"""What `gpuyard` starts, and `python -m app.cli`: nothing but the way to app.cli.main, which takes a while."""

from app.interrupts import ends_at_once


def main() -> None:
    """Run a command."""
    with ends_at_once():
        from app.cli.main import main as run  # noqa: PLC0415 - inside the block is the point
    run()


if __name__ == "__main__":
    main()
