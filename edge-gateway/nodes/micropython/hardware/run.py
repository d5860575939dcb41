# Starts main.py as the board does, with mDNS asked at another place where a test says so.
import os

import node

if os.getenv("MDNS"):
    node.MDNS = ("127.0.0.1", int(os.getenv("MDNS")))
import main
