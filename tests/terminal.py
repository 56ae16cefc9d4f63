"""What a terminal does for the processes that it starts."""

import signal


def heed_interrupts() -> None:
    """As a terminal's job does; a shell's background job, and so its tests, ignore Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
