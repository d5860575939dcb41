import sys

import border
import time
import utime


def unique_id():
    return b"\xa4\xcf\x12\x03\xb1\xc8"


def reset():
    print("reset")
    sys.exit(1)


class Pin:
    def __init__(self, number):
        self.number = number


# Bites an ESP8266 after 1.6 to 3.2 s: after the one in the test's time, after the other in
# the machine's, which passes while a call does not return. MicroPython's
# ports/esp8266/ets_alt_task.c: "A 1.6 second period timer will increment this variable and
# if it gets to 2 then the SW WDT will trigger a reset."; docs/library/machine.WDT.rst: "On
# the esp8266 port a timeout cannot be specified, it is determined by the underlying
# system." and "On rp2040 devices the maximum timeout is 8388 ms."
class WDT:
    def __init__(self, timeout=None):
        self._timeout, self._longest = (timeout, timeout) if timeout else (1600, 3200)
        self.feed(True)

    def feed(self, first=False):
        now, real = time.slept, utime.ticks_ms() - border.waited
        if not first and (now - self._fed > self._timeout or real - self._real > self._longest):
            print("the watchdog was not fed for", now - self._fed, real - self._real, "ms")
            sys.exit(2)
        self._fed, self._real = now, real


class SoftI2C:
    def __init__(self, scl, sda):
        pass

    def writeto(self, address, data):
        border.ask("write", address, *data)

    def writeto_mem(self, address, register, data):
        border.ask("write", address, register, *data)

    def readfrom(self, address, size):
        return border.chip("read", address, size)

    def readfrom_mem(self, address, register, size):
        return border.chip("register", address, register, size)
