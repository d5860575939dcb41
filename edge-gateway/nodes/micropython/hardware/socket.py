# The machine's own, but that a test is told when a name would be asked for by DNS, which
# stops an ESP8266 for 7 to 14 s.
import border
import usocket
from usocket import *


def getaddrinfo(host, port):
    if border.held and not host.replace(".", "").isdigit():
        border.ask("dns", host)
    return usocket.getaddrinfo(host, port)
