# Starts main.py as the board does, with mDNS asked at another place where a test says so.
import os

import board
import link

if os.getenv("PLATFORM"):

    class sys:
        platform = os.getenv("PLATFORM")

    board.sys = sys
if os.getenv("MDNS"):
    link.MDNS = ("127.0.0.1", int(os.getenv("MDNS")))
import main
